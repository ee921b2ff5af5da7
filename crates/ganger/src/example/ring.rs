//! All-reduce around a ring of TCP connections: reduce-scatter, then all-gather.
//!
//! The order of additions depends on the number of ranks alone, and every rank receives the same bytes, so that a sum
//! is equal to the last bit on all ranks and in every run. A rank that loses a peer tells both neighbours which one it
//! was before it leaves; without that, its own end would look like the cause to the others.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::error::TrainError;
use super::rendezvous::Neighbours;

/// kind, value (sequence number, or the lost rank), length of what follows; little-endian u32 each.
const HEADER: usize = 12;
const NUMBERS: u32 = 1;
const LOST: u32 = 2;
const SLICE: Duration = Duration::from_millis(200);

/// How two values become one.
#[derive(Clone, Copy)]
pub enum Reduce {
    Sum,
    Max,
}

pub struct Ring {
    rank: usize,
    world: usize,
    /// Longest silence of a peer.
    patience: Duration,
    sequence: u32,
    neighbours: Option<Neighbours>,
}

/// One transfer under way: a frame goes out to the next rank while one comes in from the previous.
struct Transfer<'a> {
    out: &'a [u8],
    sent: usize,
    inward: &'a mut [u8],
    received: usize,
    /// What the next rank says, which can only be that a peer is lost.
    notice: [u8; HEADER],
    noticed: usize,
    next_closed: bool,
}

/// Which rank is lost, and how that showed.
type Loss = (usize, String);

impl Ring {
    /// A ring over `neighbours`; without them, of one rank.
    pub fn new(rank: usize, world: usize, neighbours: Option<Neighbours>, patience: Duration) -> Self {
        Self { rank, world, patience, sequence: 0, neighbours }
    }

    /// Replaces `values` on every rank by their reduction over all ranks, which must call this alike.
    pub fn all_reduce(&mut self, values: &mut [f64], reduce: Reduce) -> Result<(), TrainError> {
        let (rank, world) = (self.rank, self.world);
        let share = |index: usize| index % world * values.len() / world..(index % world + 1) * values.len() / world;
        let shares: Vec<_> = (0..2 * world).map(share).collect();
        for step in 0..world - 1 {
            let (mine, theirs) = (&shares[rank + world - step], shares[rank + world - step - 1].clone());
            let incoming = self.pass(&values[mine.clone()], theirs.len())?;
            for (value, other) in values[theirs].iter_mut().zip(incoming) {
                *value = match reduce {
                    Reduce::Sum => other + *value,
                    Reduce::Max => other.max(*value),
                };
            }
        }
        for step in 0..world - 1 {
            let (mine, theirs) = (&shares[(rank + 1 + world - step) % world], shares[rank + world - step].clone());
            let incoming = self.pass(&values[mine.clone()], theirs.len())?;
            values[theirs].copy_from_slice(&incoming);
        }
        Ok(())
    }

    /// The greatest `value` of all ranks.
    pub fn max(&mut self, value: f64) -> Result<f64, TrainError> {
        let mut values = [value];
        self.all_reduce(&mut values, Reduce::Max)?;
        Ok(values[0])
    }

    /// Returns when every rank has come here.
    pub fn barrier(&mut self) -> Result<(), TrainError> {
        self.max(0.0).map(drop)
    }

    /// Sends numbers to the next rank and receives `count` from the previous one.
    fn pass(&mut self, numbers: &[f64], count: usize) -> Result<Vec<f64>, TrainError> {
        let mut out = header(NUMBERS, self.sequence, numbers.len() * 8).to_vec();
        out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let mut inward = vec![0; HEADER + count * 8];
        let expected = header(NUMBERS, self.sequence, count * 8);
        self.sequence = self.sequence.wrapping_add(1);
        let mut transfer = Transfer {
            out: &out,
            sent: 0,
            inward: &mut inward,
            received: 0,
            notice: [0; HEADER],
            noticed: 0,
            next_closed: false,
        };
        if let Err((lost, how)) = self.exchange(&mut transfer, &expected) {
            let between_frames = transfer.sent == 0 || transfer.sent == transfer.out.len();
            self.tell(lost, between_frames);
            return Err(TrainError::PeerLost { rank: lost, how });
        }
        let bytes = inward[HEADER..].chunks_exact(8);
        Ok(bytes.map(|chunk| chunk.try_into().map_or(f64::NAN, f64::from_le_bytes)).collect())
    }

    fn exchange(&self, transfer: &mut Transfer<'_>, expected: &[u8; HEADER]) -> Result<(), Loss> {
        let (before, after) = self.neighbour_ranks();
        let Some(neighbours) = &self.neighbours else { return Ok(()) };
        let mut deadline = Instant::now() + self.patience;
        loop {
            let (to_receive, to_send) = (transfer.to_receive(), transfer.to_send());
            if !to_receive && !to_send {
                return Ok(());
            }
            if Instant::now() >= deadline {
                let silent = if to_receive { before } else { after };
                return Err((silent, format!("silent for {} s", self.patience.as_secs())));
            }
            wait(neighbours, transfer).map_err(|error| (before, format!("cannot poll: {error}")))?;
            let moved_before = transfer.sent + transfer.received;
            // The notice is read first: it names the cause, where a broken connection only names a neighbour.
            transfer.hear(&neighbours.next).map_err(|how| (after, how))?;
            if let Some(rank) = lost_rank(&transfer.notice[..transfer.noticed]) {
                return Err((rank, format!("rank {after} says so")));
            }
            let received = transfer.receive(&neighbours.previous);
            // A notice may be the last that a rank said before it closed, so it is looked at before that.
            transfer.check_header(expected, before)?;
            received.map_err(|how| (before, how))?;
            transfer
                .send(&neighbours.next)
                .map_err(|how| self.cause_of_broken_send(transfer, neighbours, after, how))?;
            if transfer.sent + transfer.received > moved_before {
                deadline = Instant::now() + self.patience;
            }
        }
    }

    /// The next rank may have told whom it lost before it closed.
    fn cause_of_broken_send(
        &self,
        transfer: &mut Transfer<'_>,
        neighbours: &Neighbours,
        after: usize,
        how: String,
    ) -> Loss {
        // What cannot be read any more cannot say more than `how` does.
        let _ = transfer.hear(&neighbours.next);
        match lost_rank(&transfer.notice[..transfer.noticed]) {
            Some(rank) => (rank, format!("rank {after} says so")),
            None => (after, how),
        }
    }

    /// Tells both neighbours, as far as they can still be reached.
    fn tell(&mut self, lost: usize, between_frames: bool) {
        let (before, after) = self.neighbour_ranks();
        let Some(neighbours) = &mut self.neighbours else { return };
        let notice = header(LOST, u32::try_from(lost).unwrap_or(u32::MAX), 0);
        if before != lost {
            let _ = neighbours.previous.write(&notice);
        }
        // In the middle of a frame a notice would be taken for numbers.
        if after != lost && between_frames {
            let _ = neighbours.next.write(&notice);
        }
    }

    fn neighbour_ranks(&self) -> (usize, usize) {
        ((self.rank + self.world - 1) % self.world, (self.rank + 1) % self.world)
    }
}

impl Transfer<'_> {
    fn to_receive(&self) -> bool {
        self.received < self.inward.len()
    }

    fn to_send(&self) -> bool {
        self.sent < self.out.len()
    }

    fn receive(&mut self, mut previous: &TcpStream) -> Result<(), String> {
        while self.to_receive() {
            match previous.read(&mut self.inward[self.received..]) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(count) => self.received += count,
                Err(error) if is_pending(&error) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn send(&mut self, mut next: &TcpStream) -> Result<(), String> {
        while self.to_send() {
            match next.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if is_pending(&error) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Reads a notice. A next rank that has everything it needs may close: that is an error only while it is owed a frame.
    fn hear(&mut self, mut next: &TcpStream) -> Result<(), String> {
        while !self.next_closed && self.noticed < HEADER {
            match next.read(&mut self.notice[self.noticed..]) {
                Ok(0) => self.next_closed = true,
                Ok(count) => self.noticed += count,
                Err(error) if is_pending(&error) => return Ok(()),
                Err(_) => self.next_closed = true,
            }
        }
        let owed = self.next_closed && self.to_send() && lost_rank(&self.notice[..self.noticed]).is_none();
        if owed { Err("it closed the connection".into()) } else { Ok(()) }
    }

    /// A frame that is not the expected one is a notice, or a peer that runs other code or data.
    fn check_header(&self, expected: &[u8; HEADER], before: usize) -> Result<(), Loss> {
        let Some(found) = self.inward[..self.received].first_chunk::<HEADER>() else { return Ok(()) };
        match lost_rank(found) {
            Some(rank) => Err((rank, format!("rank {before} says so"))),
            None if found == expected => Ok(()),
            None => Err((before, "it is out of step: start all ranks with the same flags".into())),
        }
    }
}

/// Waits a moment for either connection to be of use.
fn wait(neighbours: &Neighbours, transfer: &Transfer<'_>) -> io::Result<()> {
    let previous = if transfer.to_receive() { PollFlags::IN } else { PollFlags::empty() };
    let listening = if transfer.next_closed { PollFlags::empty() } else { PollFlags::IN };
    let next = if transfer.to_send() { listening | PollFlags::OUT } else { listening };
    let mut fds = Vec::with_capacity(2);
    // A closed connection is always ready: watching one of which nothing is expected would spin.
    if !previous.is_empty() {
        fds.push(PollFd::new(&neighbours.previous, previous));
    }
    if !next.is_empty() {
        fds.push(PollFd::new(&neighbours.next, next));
    }
    let slice = SLICE.try_into().ok();
    match poll(&mut fds, slice.as_ref()) {
        Err(error) if error != rustix::io::Errno::INTR => Err(error.into()),
        _ => Ok(()),
    }
}

fn header(kind: u32, value: u32, length: usize) -> [u8; HEADER] {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    let mut bytes = [0; HEADER];
    for (slot, word) in bytes.chunks_exact_mut(4).zip([kind, value, length]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn lost_rank(frame: &[u8]) -> Option<usize> {
    let (kind, rest) = frame.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*kind) == LOST && rest.len() >= 4).then_some(u32::from_le_bytes(*value) as usize)
}

fn is_pending(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let inward = listener.accept().unwrap().0;
        out.set_nonblocking(true).unwrap();
        inward.set_nonblocking(true).unwrap();
        (out, inward)
    }

    fn rings(world: usize) -> Vec<Ring> {
        let (mut outs, mut ins): (Vec<_>, Vec<_>) = (0..world).map(|_| pair()).unzip();
        ins.rotate_right(1);
        outs.drain(..)
            .zip(ins)
            .enumerate()
            .map(|(rank, (next, previous))| {
                Ring::new(rank, world, Some(Neighbours { previous, next }), Duration::from_secs(20))
            })
            .collect()
    }

    fn on_all<T: Send>(rings: Vec<Ring>, work: impl Fn(Ring) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = rings.into_iter().map(|ring| scope.spawn(|| work(ring))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn sums_are_right_and_equal_to_the_bit_for_every_size() {
        for (world, length) in [(2, 1), (3, 2), (4, 162), (5, 200_000)] {
            let value = |rank: usize, i: usize| ((rank * 7919 + i * 104_729) % 1000) as f64 / 7.0;
            let sums = on_all(rings(world), |mut ring| {
                let mut values: Vec<f64> = (0..length).map(|i| value(ring.rank, i)).collect();
                ring.all_reduce(&mut values, Reduce::Sum).unwrap();
                values
            });
            for sum in &sums {
                assert!(sum.iter().zip(&sums[0]).all(|(a, b)| a.to_bits() == b.to_bits()));
            }
            for (i, sum) in sums[0].iter().enumerate() {
                let expected: f64 = (0..world).map(|rank| value(rank, i)).sum();
                assert!((sum - expected).abs() < 1e-9, "{world} ranks, value {i}: {sum} is not {expected}");
            }
        }
    }

    #[test]
    fn one_raised_flag_reaches_all() {
        let seen = on_all(rings(4), |mut ring| ring.max(f64::from(u8::from(ring.rank == 2))).unwrap());
        assert_eq!(seen, [1.0; 4]);
    }

    #[test]
    fn everybody_learns_which_rank_was_lost() {
        let mut all = rings(5);
        drop(all.remove(2));
        let errors = on_all(all, |mut ring| ring.barrier().unwrap_err());
        for error in errors {
            assert!(matches!(error, TrainError::PeerLost { rank: 2, .. }), "{error}");
        }
    }

    #[test]
    fn the_last_words_of_a_peer_count_though_it_has_closed() {
        for speaks_from_behind in [true, false] {
            let ((mut before, previous), (next, mut after)) = (pair(), pair());
            let mut ring = Ring::new(0, 4, Some(Neighbours { previous, next }), Duration::from_secs(20));
            let speaker = if speaks_from_behind { &mut before } else { &mut after };
            speaker.write_all(&header(LOST, 2, 0)).unwrap();
            speaker.shutdown(std::net::Shutdown::Both).unwrap();
            let error = ring.barrier().unwrap_err();
            assert!(matches!(error, TrainError::PeerLost { rank: 2, .. }), "{error}");
        }
    }

    #[test]
    fn a_rank_out_of_step_is_noticed() {
        let errors = on_all(rings(2), |mut ring| {
            let mut values = vec![0.0; 4 + 2 * ring.rank];
            ring.all_reduce(&mut values, Reduce::Sum).unwrap_err().to_string()
        });
        assert!(errors.iter().any(|error| error.contains("out of step")), "{errors:?}");
    }
}
