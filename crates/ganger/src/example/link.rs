//! The lines by which ranks introduce themselves, before a connection carries numbers.
//!
//! `GANGER-EXAMPLE-1 KIND job attempt world rank port` is answered by `welcome …` or `refused CODE why`. Text, so that
//! a capture can be read. Every wait looks at the deadline and at the wish to stop, and no line may grow without end.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::error::TrainError;
use super::settings::Settings;
use super::stop::Stop;

const MAGIC: &str = "GANGER-EXAMPLE-1";
const SLICE: Duration = Duration::from_millis(100);
/// A gang that is still forming may finish for this long after a stop, so that all its ranks end alike.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Longest line: the addresses of 65536 ranks.
const LINE_BYTES: usize = 4 << 20;

/// How long a rank waits for the others.
pub struct Patience<'a> {
    pub deadline: Instant,
    pub stop: &'a Stop,
}

impl Patience<'_> {
    /// Fails when the time is over; `what` says what was waited for.
    pub fn check(&self, what: impl FnOnce() -> String) -> Result<(), TrainError> {
        let now = Instant::now();
        if self.stop.since().is_some_and(|since| now >= since + STOP_GRACE) {
            return Err(TrainError::StoppedBeforeTraining);
        }
        if now >= self.deadline {
            return Err(TrainError::NotFormed { what: what() });
        }
        Ok(())
    }

    pub fn limited_to(&self, limit: Duration) -> Patience<'_> {
        Patience { deadline: self.deadline.min(Instant::now() + limit), stop: self.stop }
    }

    /// Sleeps a moment before a retry; a deadline that is nearer ends it.
    pub fn pause(&self) {
        let due = self.deadline.min(Instant::now() + SLICE);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
    }

    /// Waits until `fd` can be read.
    pub fn readable(&self, fd: impl AsFd, what: impl Fn() -> String) -> Result<(), TrainError> {
        loop {
            self.check(&what)?;
            let mut fds = [PollFd::new(&fd, PollFlags::IN)];
            let slice = SLICE.try_into().ok();
            if poll(&mut fds, slice.as_ref()).is_ok_and(|ready| ready > 0) {
                return Ok(());
            }
        }
    }
}

/// Why a connection is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// To rank 0, to learn where everybody is.
    Join,
    /// To the next rank, to carry numbers.
    Ring,
}

/// How a rank introduces itself.
#[derive(Debug, PartialEq)]
pub struct Hello {
    pub kind: Kind,
    pub job: String,
    pub attempt: u32,
    pub world: usize,
    pub rank: usize,
    /// Where the sender listens for its ring neighbour.
    pub port: u16,
}

impl Hello {
    pub fn of(settings: &Settings, kind: Kind, port: u16) -> Self {
        let Settings { job, attempt, world, rank, .. } = settings;
        Self { kind, job: job.clone(), attempt: *attempt, world: *world, rank: *rank, port }
    }

    pub fn line(&self) -> String {
        let kind = if self.kind == Kind::Join { "join" } else { "ring" };
        format!("{MAGIC} {kind} {} {} {} {} {}", self.job, self.attempt, self.world, self.rank, self.port)
    }

    pub fn parse(line: &str) -> Option<Self> {
        let [MAGIC, kind, job, attempt, world, rank, port] = line.split(' ').collect::<Vec<_>>()[..] else {
            return None;
        };
        let kind = match kind {
            "join" => Kind::Join,
            "ring" => Kind::Ring,
            _ => return None,
        };
        let (attempt, world, rank) = (attempt.parse().ok()?, world.parse().ok()?, rank.parse().ok()?);
        Some(Self { kind, job: job.into(), attempt, world, rank, port: port.parse().ok()? })
    }

    /// Why `other` does not belong to the gang of `self`: a refusal line, or nothing.
    pub fn refusal(&self, other: &Self) -> Option<String> {
        let (mine, theirs) = (self.attempt, other.attempt);
        if other.job != self.job {
            return Some(format!("refused job this port serves job {}, not job {}", self.job, other.job));
        }
        if theirs < mine {
            return Some(format!("refused old rank {} is of attempt {theirs}, attempt {mine} is running", other.rank));
        }
        if theirs > mine {
            return Some(format!("refused new attempt {mine} has not ended yet, attempt {theirs} must wait"));
        }
        if other.world != self.world || other.rank >= self.world {
            return Some(format!("refused world this gang has {} ranks, not {}", self.world, other.world));
        }
        None
    }
}

pub fn send_line(mut stream: &TcpStream, line: &str) -> io::Result<()> {
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Reads one line and not a byte more: numbers may follow it. `None` where the other side closed or broke off.
pub fn read_line(
    mut stream: &TcpStream,
    patience: &Patience<'_>,
    what: impl Fn() -> String,
) -> Result<Option<String>, TrainError> {
    let mut line = Vec::new();
    loop {
        patience.readable(stream, &what)?;
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) if byte[0] == b'\n' => return Ok(String::from_utf8(line).ok()),
            Ok(1) if line.len() < LINE_BYTES => line.push(byte[0]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            _ => return Ok(None),
        }
    }
}

/// The next connection to `listener` that introduces itself properly; others are dropped.
pub fn accept_hello(
    listener: &TcpListener,
    patience: &Patience<'_>,
    what: impl Fn() -> String,
) -> Result<(TcpStream, Hello), TrainError> {
    loop {
        patience.readable(listener, &what)?;
        let Ok((stream, _)) = listener.accept() else { continue };
        // A stranger that connects and stays silent must not use up the others' time.
        let brief = patience.limited_to(Duration::from_secs(2));
        let line = read_line(&stream, &brief, String::new);
        if let Ok(Some(hello)) = line.map(|line| line.as_deref().and_then(Hello::parse)) {
            return Ok((stream, hello));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(job: &str, attempt: u32, rank: usize) -> Hello {
        Hello { kind: Kind::Ring, job: job.into(), attempt, world: 4, rank, port: 7 }
    }

    #[test]
    fn a_hello_survives_the_wire_and_noise_does_not() {
        assert_eq!(Hello::parse(&hello("9", 2, 3).line()), Some(hello("9", 2, 3)));
        for noise in ["", "GET / HTTP/1.1", "GANGER-EXAMPLE-1 ring 9 2 4 3", "GANGER-EXAMPLE-2 ring 9 2 4 3 7"] {
            assert_eq!(Hello::parse(noise), None, "{noise}");
        }
    }

    #[test]
    fn only_the_same_attempt_of_the_same_job_is_let_in() {
        let mine = hello("9", 2, 0);
        let answer = |other: Hello| mine.refusal(&other).map(|line| line.split(' ').nth(1).unwrap().to_string());
        assert_eq!(answer(hello("9", 2, 3)), None);
        assert_eq!(answer(hello("9", 1, 3)).as_deref(), Some("old"));
        assert_eq!(answer(hello("9", 3, 3)).as_deref(), Some("new"));
        assert_eq!(answer(hello("8", 2, 3)).as_deref(), Some("job"));
        assert_eq!(answer(hello("9", 2, 4)).as_deref(), Some("world"));
    }
}
