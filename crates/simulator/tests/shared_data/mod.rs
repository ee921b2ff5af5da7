//! Public traces that are too large to carry: looked for in `GANGER_SHARED_DATA`, else in `shared/data` beside the
//! checkout or beside a folder that holds several checkouts. A test whose data is not there says that it is skipped.
use ganger_simulator::replay::source;
use std::path::PathBuf;

/// The text of a file below the data folder, unpacked; none, and a word about it, where there is no such folder.
pub fn text(path: &str) -> Option<String> {
    let Some(folder) = folder() else {
        println!("skipped: no {path}; set GANGER_SHARED_DATA to the folder with the public traces");
        return None;
    };
    let bytes = std::fs::read(folder.join(path)).unwrap();
    Some(source::text(bytes, path).unwrap())
}

fn folder() -> Option<PathBuf> {
    let checkout = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = match std::env::var_os("GANGER_SHARED_DATA") {
        Some(named) => vec![PathBuf::from(named)],
        None => ["../shared/data", "../../shared/data"].map(|place| checkout.join(place)).to_vec(),
    };
    places.into_iter().find(|place| place.is_dir())
}
