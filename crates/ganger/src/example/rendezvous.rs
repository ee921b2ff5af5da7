//! How the ranks find one another: all join at rank 0, learn the addresses, and close a ring.
//!
//! Only ranks of the same job and attempt are let in: what an older attempt left behind is refused and ends, and a
//! newer attempt waits until the older one has gone. Nothing here ever runs after the first step.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::Duration;

use super::error::TrainError;
use super::link::{Hello, Kind, Patience, accept_hello, read_line, send_line};
use super::settings::Settings;

const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// The connections of one rank in the ring.
pub struct Neighbours {
    /// From the rank before this one; numbers come in here.
    pub previous: TcpStream,
    /// To the rank after this one; numbers go out here.
    pub next: TcpStream,
}

/// What a rank knows when all have joined.
struct Gathered {
    listener: TcpListener,
    next: SocketAddr,
}

/// Forms the ring; `None` where there is only one rank.
pub fn form(settings: &Settings, patience: &Patience<'_>) -> Result<Option<Neighbours>, TrainError> {
    if settings.world == 1 {
        return Ok(None);
    }
    let gathered = if settings.rank == 0 { gather(settings, patience)? } else { join(settings, patience)? };
    close_ring(settings, &gathered, patience).map(Some)
}

/// Rank 0: waits for everybody and tells each where all are.
fn gather(settings: &Settings, patience: &Patience<'_>) -> Result<Gathered, TrainError> {
    let listener = listen_as_master(settings, patience)?;
    let mut joined: Vec<Option<(TcpStream, SocketAddr)>> = Vec::new();
    joined.resize_with(settings.world - 1, || None);
    while joined.iter().any(Option::is_none) {
        let (stream, hello) = accept_hello(&listener, patience, || format!("rank 0 misses {}", missing(&joined)))?;
        if let Err(refusal) = admit(settings, &mut joined, &stream, &hello) {
            // Whoever is refused and has gone already needs no answer.
            let _ = send_line(&stream, &refusal);
        }
    }
    let joined: Vec<_> = joined.into_iter().flatten().collect();
    let addresses: Vec<String> = joined.iter().map(|(_, address)| address.to_string()).collect();
    let welcome = format!("welcome {}", addresses.join(" "));
    for (index, (stream, _)) in joined.iter().enumerate() {
        send_line(stream, &welcome).map_err(|error| lost(index + 1, &error))?;
    }
    Ok(Gathered { listener, next: joined[0].1 })
}

/// Takes a rank in, or says why not.
fn admit(
    settings: &Settings,
    joined: &mut [Option<(TcpStream, SocketAddr)>],
    stream: &TcpStream,
    hello: &Hello,
) -> Result<(), String> {
    if let Some(refusal) = Hello::of(settings, Kind::Join, 0).refusal(hello) {
        return Err(refusal);
    }
    let slot = hello.rank.checked_sub(1).and_then(|index| joined.get_mut(index));
    let Some(slot) = slot.filter(|slot| slot.as_ref().is_none_or(|(stream, _)| has_gone(stream))) else {
        return Err(format!("refused twin rank {} of attempt {} is here already", hello.rank, hello.attempt));
    };
    let peer = stream.try_clone().and_then(|clone| Ok((clone, stream.peer_addr()?)));
    let (clone, address) = peer.map_err(|error| format!("refused retry the connection broke: {error}"))?;
    *slot = Some((clone, SocketAddr::new(address.ip(), hello.port)));
    Ok(())
}

/// Whether the other side of a connection on which nothing is due has closed it.
fn has_gone(stream: &TcpStream) -> bool {
    let looked = stream.set_nonblocking(true).and_then(|()| stream.peek(&mut [0]));
    let gone = !matches!(&looked, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    gone || stream.set_nonblocking(false).is_err()
}

fn missing(joined: &[Option<(TcpStream, SocketAddr)>]) -> String {
    let ranks: Vec<String> =
        joined.iter().enumerate().filter(|(_, slot)| slot.is_none()).map(|(i, _)| (i + 1).to_string()).collect();
    match ranks.len() {
        0..=8 => format!("rank {}", ranks.join(", ")),
        many => format!("rank {} and {} more", ranks[..8].join(", "), many - 8),
    }
}

fn listen_as_master(settings: &Settings, patience: &Patience<'_>) -> Result<TcpListener, TrainError> {
    let port = settings.master_port;
    loop {
        let problem = match bind_master(&settings.master_host, port) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if problem.kind() != io::ErrorKind::AddrInUse {
            return Err(TrainError::io(|| {
                format!("listen on MASTER_ADDR:MASTER_PORT {}:{port}", settings.master_host)
            })(problem));
        }
        // An older attempt may still be ending.
        patience.check(|| format!("port {port} is in use on the node of rank 0"))?;
        patience.pause();
    }
}

fn bind_master(host: &str, port: u16) -> io::Result<TcpListener> {
    let listener = match TcpListener::bind((host, port)) {
        // The name may stand for an address that is translated on the way here.
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Other ranks: ask rank 0 until it lets this one in.
fn join(settings: &Settings, patience: &Patience<'_>) -> Result<Gathered, TrainError> {
    let mut last = "no answer yet".to_string();
    loop {
        patience.check(|| format!("rank {} could not join rank 0: {last}", settings.rank))?;
        match ask(settings, patience)? {
            Ok(gathered) => return Ok(gathered),
            Err(why) => last = why,
        }
        patience.pause();
    }
}

/// One attempt to join; the inner error is worth another one.
fn ask(settings: &Settings, patience: &Patience<'_>) -> Result<Result<Gathered, String>, TrainError> {
    let (stream, listener, port) = match call_master(settings) {
        Ok(called) => called,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Err(error) = send_line(&stream, &Hello::of(settings, Kind::Join, port).line()) {
        return Ok(Err(error.to_string()));
    }
    let answer = read_line(&stream, patience, || format!("rank {} waits for the other ranks to join", settings.rank))?;
    let Some(answer) = answer else { return Ok(Err("rank 0 closed the connection".into())) };
    if let Some(refusal) = answer.strip_prefix("refused ") {
        return match refusal.split_once(' ') {
            Some(("new" | "job" | "retry", why)) => Ok(Err(why.into())),
            Some((_, why)) => Err(TrainError::Refused { what: why.into() }),
            None => Err(TrainError::Refused { what: refusal.into() }),
        };
    }
    let next = next_address(settings, &answer, stream.peer_addr().ok());
    Ok(next.map(|next| Gathered { listener, next }).ok_or(format!("rank 0 sent no list of addresses: {answer:?}")))
}

fn call_master(settings: &Settings) -> io::Result<(TcpStream, TcpListener, u16)> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{} has no address", settings.master_host));
    for address in (settings.master_host.as_str(), settings.master_port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_LIMIT) {
            Ok(stream) => {
                let here: IpAddr = stream.local_addr()?.ip();
                let listener = TcpListener::bind((here, 0))?;
                listener.set_nonblocking(true)?;
                let port = listener.local_addr()?.port();
                return Ok((stream, listener, port));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The welcome lists ranks 1…; rank 0 is where it was called.
fn next_address(settings: &Settings, welcome: &str, master: Option<SocketAddr>) -> Option<SocketAddr> {
    let addresses: Vec<&str> = welcome.strip_prefix("welcome ")?.split(' ').collect();
    if addresses.len() != settings.world - 1 {
        return None;
    }
    if settings.rank + 1 == settings.world { master } else { addresses[settings.rank].parse().ok() }
}

/// Connects to the next rank and lets the previous one in.
fn close_ring(settings: &Settings, gathered: &Gathered, patience: &Patience<'_>) -> Result<Neighbours, TrainError> {
    let (rank, world) = (settings.rank, settings.world);
    let (before, after) = ((rank + world - 1) % world, (rank + 1) % world);
    let hello = Hello::of(settings, Kind::Ring, 0);
    let call = || {
        let stream = TcpStream::connect_timeout(&gathered.next, CONNECT_LIMIT)?;
        send_line(&stream, &hello.line()).map(|()| stream)
    };
    let next = call().map_err(|error| lost(after, &error))?;
    let previous = accept_previous(&gathered.listener, &hello, before, patience)?;
    let answer = read_line(&next, patience, || format!("rank {rank} waits for rank {after} to take its connection"))?;
    match answer.as_deref() {
        Some("welcome") => {}
        Some(refusal) => return Err(TrainError::Refused { what: refusal.into() }),
        None => return Err(TrainError::PeerLost { rank: after, how: "it left while the ring was formed".into() }),
    }
    for stream in [&previous, &next] {
        let prepare = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
        prepare.map_err(TrainError::io(|| "prepare the connections of the ring"))?;
    }
    Ok(Neighbours { previous, next })
}

fn accept_previous(
    listener: &TcpListener,
    hello: &Hello,
    before: usize,
    patience: &Patience<'_>,
) -> Result<TcpStream, TrainError> {
    loop {
        let (stream, theirs) = accept_hello(listener, patience, || format!("rank {before} does not connect"))?;
        let refusal = match hello.refusal(&theirs) {
            None if theirs.kind == Kind::Ring && theirs.rank == before => None,
            None => Some(format!("refused twin the gang is complete without another rank {}", theirs.rank)),
            refusal => refusal,
        };
        match refusal {
            None => return send_line(&stream, "welcome").map(|()| stream).map_err(|error| lost(before, &error)),
            // Whoever is refused and has gone already needs no answer.
            Some(refusal) => drop(send_line(&stream, &refusal)),
        }
    }
}

fn lost(rank: usize, error: &io::Error) -> TrainError {
    TrainError::PeerLost { rank, how: error.to_string() }
}
