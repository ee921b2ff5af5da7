//! Our own manifest: whatever happens to a listed file or to the manifest is seen.

use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::super::{Defect, Format, MANIFEST_NAME, ManifestError, verify, write_manifest};
use super::fixtures::Tree;

const FILES: [&str; 3] = ["a.bin", "sub/b.bin", MANIFEST_NAME];

fn built() -> Tree {
    let tree = Tree::new();
    tree.write("a.bin", b"0123456789").write("sub/b.bin", [7; 300]).write("sub/half.tmp", b"left out");
    write_manifest(&tree.path("."), 42).unwrap();
    tree
}

#[test]
fn writer_and_reader_agree() {
    let tree = built();
    let written = write_manifest(&tree.path("."), 42).unwrap();
    let verified = verify(&tree.path(".")).unwrap();
    assert_eq!(written, verified);
    assert_eq!((verified.format, verified.step, verified.files, verified.bytes), (Format::Manifest, Some(42), 2, 310));
    assert_eq!(verified.digest.unwrap().len(), 64);
}

#[test]
fn changed_long_and_missing_files_are_seen() {
    let tree = built();
    tree.write("a.bin", b"012345678X");
    assert!(matches!(verify(&tree.path(".")), Err(Defect::HashMismatch { .. })));
    tree.write("a.bin", b"0123456789+");
    assert!(matches!(verify(&tree.path(".")), Err(Defect::Long { extra_bytes: 1, .. })));
    tree.remove("a.bin");
    assert!(matches!(verify(&tree.path(".")), Err(Defect::MissingFile { .. })));
}

#[test]
fn a_damaged_manifest_never_falls_back_to_another_format() {
    let tree = built();
    tree.write("model.safetensors", super::fixtures::safetensors(&[("w", 3)])).cut(MANIFEST_NAME, 0);
    assert!(matches!(verify(&tree.path(".")), Err(Defect::Malformed { .. })));
}

#[test]
fn listed_paths_stay_inside() {
    let listed = ["../out.bin", "/etc/hostname", "sub/../a.bin", "./a.bin", "sub//b.bin", "sub/", ""];
    for path in listed {
        let tree = built();
        let entry = serde_json::json!({"path": path, "bytes": 10, "blake3": "00"});
        tree.write(MANIFEST_NAME, serde_json::json!({"version": 1, "step": 1, "files": [entry]}).to_string());
        assert!(matches!(verify(&tree.path(".")), Err(Defect::BadListing { .. })), "{path}");
    }
    let tree = built();
    let entry = serde_json::json!({"path": "a.bin", "bytes": 10, "blake3": "00"});
    tree.write(MANIFEST_NAME, serde_json::json!({"version": 1, "step": 1, "files": [entry, entry]}).to_string());
    assert!(verify(&tree.path(".")).unwrap_err().to_string().contains("listed twice"));
    tree.write(MANIFEST_NAME, serde_json::json!({"version": 2, "step": 1, "files": [entry]}).to_string());
    assert!(verify(&tree.path(".")).unwrap_err().to_string().contains("version 2"));
}

#[test]
fn symbolic_links_may_not_lead_out() {
    let outside = Tree::new();
    outside.write("a.bin", b"0123456789");
    let tree = built();
    tree.remove("a.bin");
    symlink(outside.path("a.bin"), tree.path("a.bin")).unwrap();
    assert!(verify(&tree.path(".")).unwrap_err().to_string().contains("symbolic link out"));
    assert!(matches!(write_manifest(&tree.path("."), 1), Err(ManifestError::Refused { .. })));
    tree.remove("a.bin").write("real.bin", b"0123456789");
    symlink("real.bin", tree.path("a.bin")).unwrap();
    assert!(verify(&tree.path(".")).is_ok());
}

#[test]
fn an_empty_directory_gets_no_manifest() {
    let tree = Tree::new();
    assert!(matches!(write_manifest(&tree.path("."), 1), Err(ManifestError::Empty { .. })));
    assert!(!tree.path(MANIFEST_NAME).exists());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_cut_of_any_file_is_seen(file in 0..FILES.len(), part in 0.0..1.0_f64) {
        let tree = built();
        let bytes = tree.bytes(FILES[file]);
        tree.cut(FILES[file], (bytes as f64 * part) as u64);
        prop_assert!(verify(&tree.path(".")).is_err());
    }

    #[test]
    fn any_flipped_bit_of_data_is_seen(file in 0..2_usize, at in 0..10_usize, bit in 0..8_u8) {
        let tree = built();
        let mut content = fs::read(tree.path(FILES[file])).unwrap();
        content[at] ^= 1 << bit;
        tree.write(FILES[file], content);
        prop_assert!(verify(&tree.path(".")).is_err());
    }
}

#[test]
fn every_cut_of_the_manifest_is_seen() {
    let tree = built();
    let content = fs::read(tree.path(MANIFEST_NAME)).unwrap();
    for bytes in 0..content.len() {
        tree.write(MANIFEST_NAME, &content[..bytes]);
        assert!(verify(&tree.path(".")).is_err(), "cut to {bytes}");
    }
}
