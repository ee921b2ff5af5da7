//! Whether a node can use a checkpoint directory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::{ProbeError, newest_valid, probe};
use super::fixtures::Tree;

#[test]
fn two_nodes_that_see_the_same_directory_read_the_same_identity() {
    let tree = Tree::new();
    let dir = tree.path("new/ckpt");
    let reports = std::thread::scope(|scope| {
        let probes = [(); 4].map(|()| scope.spawn(|| probe(&dir, "job-1_2")));
        probes.map(|probe| probe.join().unwrap())
    });
    for report in &reports {
        assert!(report.problem.is_none(), "{:?}", report.problem);
        assert_eq!(report.identity, reports[0].identity);
        assert!(report.free_bytes.is_some() && report.file_system.is_some());
    }
    assert_eq!(reports[0].identity.as_ref().unwrap().len(), 32);
    let other = probe(&tree.path("other"), "job-1_2");
    assert!(other.created);
    assert_ne!(other.identity, reports[0].identity);
    assert_ne!(probe(&dir, "job-1_3").identity, reports[0].identity);
    // It leaves nothing but identities, and no candidate.
    let left: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| name.starts_with(".ganger-fs-")), "{left:?}");
    assert!(newest_valid(&dir).skipped.is_empty());
}

#[test]
fn what_cannot_be_used_says_why() {
    let tree = Tree::new();
    tree.write("file", "x");
    assert!(matches!(probe(&tree.path("file"), "t").problem, Some(ProbeError::NotADirectory { .. })));
    assert!(matches!(probe(&tree.path("d"), "../t").problem, Some(ProbeError::BadToken { .. })));
    assert!(!tree.path("d").exists());
    assert!(matches!(probe(Path::new("ckpt"), "t").problem, Some(ProbeError::Relative { .. })));
    let unmounted = probe(Path::new("/no-such-mount-of-ganger/ckpt"), "t").problem.unwrap();
    assert!(
        matches!(&unmounted, ProbeError::NotMounted { top, .. } if top == Path::new("/no-such-mount-of-ganger")),
        "{unmounted}"
    );
    assert!(matches!(probe(&tree.path("file/below"), "t").problem, Some(ProbeError::CannotCreate { .. })));
}

#[test]
fn a_directory_without_rights_is_not_usable() {
    if rustix::process::geteuid().is_root() {
        // Rights do not bind root; a directory that even root cannot write to does.
        assert!(matches!(probe(Path::new("/proc/1"), "t").problem, Some(ProbeError::NotUsable { .. })));
        return;
    }
    let tree = Tree::new();
    std::fs::create_dir(tree.path("closed")).unwrap();
    std::fs::set_permissions(tree.path("closed"), std::fs::Permissions::from_mode(0o500)).unwrap();
    assert!(matches!(probe(&tree.path("closed"), "t").problem, Some(ProbeError::NotUsable { .. })));
}
