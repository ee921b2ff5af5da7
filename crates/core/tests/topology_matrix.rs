//! Traps of `nvidia-smi topo -m` text: each sample must give the machine that a person reads in it, each broken text its
//! reason. With GANGER_SHARED naming a folder that has data/topology, all samples there are read as well.
#![allow(clippy::unwrap_used, reason = "a test may")]

use ganger_core::model::cpuset::CpuListError;
use ganger_core::model::machine::matrix::{Doubt, Hardware, Link, Matrix, MatrixError};
use ganger_core::model::machine::{Machine, MachineError, NicRole, Source};
use proptest::prelude::*;

macro_rules! sample {
    ($name:literal) => {
        include_str!(concat!("fixtures/topology/", $name, ".txt"))
    };
}

fn hardware() -> Hardware {
    Hardware::of_model("sample", "NVIDIA A100-SXM4-80GB", Source::Discovered).expect("a model in the table")
}

fn machine(text: &str) -> Machine {
    let matrix = Matrix::parse(text).expect("a readable sample");
    matrix.to_machine(hardware()).expect("a whole machine")
}

fn refused(text: &str) -> MatrixError {
    Matrix::parse(text).expect_err("a broken text")
}

fn islands(machine: &Machine) -> Vec<u64> {
    machine.islands.iter().map(|island| island.gpus).collect()
}

fn sockets(machine: &Machine) -> Vec<(u32, String)> {
    machine.sockets.iter().map(|socket| (socket.numa, socket.cpus.to_string())).collect()
}

fn gpu_sockets(machine: &Machine) -> Vec<Option<u8>> {
    machine.gpus.iter().map(|gpu| gpu.socket).collect()
}

fn rails(machine: &Machine) -> Vec<Option<u8>> {
    (0..machine.gpus.len() as u8).map(|gpu| machine.nic_for_gpu(gpu)).collect()
}

#[test]
fn escapes_before_the_first_tab_and_double_tabs() {
    let machine = machine(sample!("escape-before-tab"));
    assert_eq!(sockets(&machine), [(0, "0-23,48-71".into()), (1, "24-47,72-95".into())]);
    assert_eq!(machine.partitions(), [vec![0b11, 0b1100, 0b11_0000], vec![0b1111, 0b11_0000], vec![0b11_1111]]);
    assert!(machine.islands.is_empty());
}

#[test]
fn escapes_after_the_first_tab_and_empty_cpu_cells() {
    let matrix = Matrix::parse(sample!("escape-after-tab-empty-cpus")).unwrap();
    assert_eq!(matrix.doubts(), [Doubt::NoCpus { gpu: 2 }, Doubt::NoCpus { gpu: 3 }]);
    let machine = matrix.to_machine(hardware()).unwrap();
    // The NUMA number must not slip into the empty CPU cell.
    assert_eq!(sockets(&machine), [(0, "0-35".into()), (1, String::new())]);
    assert_eq!(gpu_sockets(&machine), [Some(0), Some(0), Some(1), Some(1)]);
    // NODE to GPUs of both sockets: where the NICs sit is not known.
    assert!(machine.nics.iter().all(|nic| nic.socket.is_none() && nic.role == NicRole::Compute));
    assert_eq!((islands(&machine), rails(&machine)), (vec![0b1111], vec![None; 4]));
}

#[test]
fn a_text_taken_inside_a_cpuset() {
    let matrix = Matrix::parse(sample!("one-core-cpuset")).unwrap();
    assert_eq!(matrix.nics(), ["NIC0", "mlx5_1", "NIC2"]);
    assert_eq!(matrix.link(4, 5), Some(Link::Pix));
    let machine = matrix.to_machine(hardware()).unwrap();
    assert_eq!(sockets(&machine), [(0, "0".into()), (1, String::new())]);
    // NICs that neighbour each other and no GPU are on no switch that counts.
    assert!(machine.nics.iter().all(|nic| nic.switch.is_none()));
    assert_eq!(machine.switches.len(), 4);
}

#[test]
fn a_numa_range_names_no_socket() {
    let matrix = Matrix::parse(sample!("numa-range")).unwrap();
    assert_eq!(matrix.affinity(0).unwrap().numa, None);
    assert_eq!(matrix.doubts().len(), 4);
    let machine = matrix.to_machine(hardware()).unwrap();
    assert_eq!(gpu_sockets(&machine), [None; 4]);
    assert_eq!((machine.total_cpus(), islands(&machine)), (2, vec![0b1111]));
}

#[test]
fn a_torn_header_and_numa_numbers_that_fall() {
    let machine = machine(sample!("split-header"));
    assert_eq!(gpu_sockets(&machine), [Some(3), Some(2), Some(1), Some(0)]);
    assert_eq!(machine.mask_of_socket(0), 0b1000);
    assert_eq!(machine.sockets[3].cpus.to_string(), "48-63,112-127");
    assert_eq!(machine.cores(3)[0].to_string(), "48,112");
}

#[test]
fn numa_not_available_stays_unknown() {
    let machine = machine(sample!("unindented-header-numa-na"));
    assert_eq!(gpu_sockets(&machine), [None; 8]);
    assert_eq!(sockets(&machine), [(0, "0-95".into())]);
    // The two trees still show: PXB joins what PIX does not.
    assert_eq!(machine.partitions(), [vec![0x0f, 0xf0], vec![0xff]]);
}

#[test]
fn device_names_as_columns_and_no_numa_column() {
    let matrix = Matrix::parse(sample!("device-name-columns-no-numa")).unwrap();
    assert_eq!(matrix.nics(), ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]);
    assert_eq!(matrix.doubts(), [Doubt::NoNumaColumn]);
    let machine = matrix.to_machine(hardware()).unwrap();
    assert_eq!(sockets(&machine), [(0, "0-19,40-59".into()), (1, "20-39,60-79".into())]);
    assert_eq!(machine.mask_of_socket(1), 0xf0);
    // One island, but no clique: the counts say which pairs are joined.
    assert_eq!((islands(&machine), machine.nvlink.len()), (vec![0xff], 16));
    assert_eq!((machine.links(0, 3), machine.links(4, 0), machine.links(0, 5)), (2, 2, 0));
    let (first, second, third, fourth) = (Some(0), Some(2), Some(1), Some(3));
    assert_eq!(rails(&machine), [first, first, second, second, third, third, fourth, fourth]);
    assert_eq!(machine.nics.iter().map(|nic| nic.rail).collect::<Vec<_>>(), [Some(0), Some(2), Some(1), Some(3)]);
}

#[test]
fn one_gpu_and_a_numa_list() {
    let machine = machine(sample!("numa-list-one-gpu"));
    assert_eq!((machine.gpus.len(), gpu_sockets(&machine)), (1, vec![None]));
    assert_eq!(sockets(&machine), [(0, "0-3".into())]);
    // SYS to the only GPU: no rail.
    assert_eq!(rails(&machine), [None]);
    assert_eq!(machine.partitions(), [vec![1]]);
}

#[test]
fn missing_nic_rows_and_nics_that_are_not_numbered_as_gpus() {
    let machine = machine(sample!("nic-rows-missing"));
    let expected = [0, 1, 2, 5, 6, 7, 8, 9].map(Some);
    assert_eq!(rails(&machine), expected);
    let storage: Vec<_> = machine.nics.iter().filter(|nic| nic.role == NicRole::Storage).map(|nic| &nic.name).collect();
    assert_eq!(storage, ["NIC3", "NIC4"]);
    assert_eq!(machine.nics[5].rail, Some(3));
}

#[test]
fn nvlink_decides_over_the_order_of_numbers_and_over_sockets() {
    let crossed = machine(sample!("crossed-bridges"));
    assert_eq!(islands(&crossed), [0b0101, 0b1010]);
    assert_eq!(crossed.island_of_gpu(3), Some(1));
    assert_eq!(crossed.partitions(), [vec![1, 2, 4, 8], vec![0b0101, 0b1010], vec![0b1111]]);
    let pairs = machine(sample!("two-bridges-four-sockets"));
    assert_eq!(islands(&pairs), [0b0011, 0b1100]);
    assert_eq!(pairs.sockets.len(), 4);
}

#[test]
fn interleaved_cpus_are_kept_as_they_are() {
    let machine = machine(sample!("interleaved-cpus"));
    assert_eq!(machine.sockets.iter().map(|socket| socket.numa).collect::<Vec<_>>(), [1, 3, 5, 7]);
    assert_eq!(machine.sockets[1].cpus.to_string(), "6,14,22,30");
    assert_eq!(gpu_sockets(&machine), [Some(1), Some(0), Some(3), Some(2)]);
    assert_eq!(rails(&machine), [0, 1, 2, 3].map(Some));
}

#[test]
fn sockets_come_from_affinity_and_not_from_the_pairs() {
    let machine = machine(sample!("all-sys-in-one-socket"));
    assert_eq!(machine.partitions()[1..], [vec![0x0f, 0xf0], vec![0xff]]);
    // PHB to one GPU tells the NICs' socket.
    assert!(machine.nics.iter().all(|nic| nic.socket == Some(1) && nic.role == NicRole::Compute));
    assert_eq!(rails(&machine)[..5], [None, None, None, None, Some(0)]);
}

#[test]
fn a_peer_matrix_behind_the_first_is_not_mixed_in() {
    let matrix = Matrix::parse(sample!("peer-matrix-follows")).unwrap();
    assert_eq!((matrix.link(0, 1), matrix.peers(0)), (Some(Link::Phb), Some(0)));
    let glued_on =
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-3\nGPU1\tPHB\t X \t0-3\n GPU0 GPU1\nGPU0 X OK\nGPU1 CNS X\n";
    let matrix = Matrix::parse(glued_on).unwrap();
    assert_eq!((matrix.peers(0), matrix.peers(1)), (Some(0b10), Some(0)));
    assert_eq!(refused("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tOK\tX\n"), MatrixError::NoMatrix);
}

#[test]
fn nics_shared_by_gpus_and_nics_of_one_socket() {
    let shared = machine(sample!("nic-shared-by-two"));
    assert_eq!(shared.mask_of_switch(0), 0b1001);
    // GPU0 and GPU3 take turns on the NICs of their tree.
    assert_eq!(rails(&shared), [Some(0), Some(3), Some(2), Some(1)]);
    let lopsided = machine(sample!("nic-on-one-socket"));
    assert_eq!(rails(&lopsided), [None, None, Some(0), Some(1)]);
}

#[test]
fn leaf_switches_count_where_every_gpu_has_one() {
    let text = "\
        GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 CPU Affinity NUMA Affinity
        GPU0 X PIX PXB PXB PIX PXB 0-7 0
        GPU1 PIX X PXB PXB PIX PXB 0-7 0
        GPU2 PXB PXB X PIX PXB PIX 0-7 0
        GPU3 PXB PXB PIX X PXB PIX 0-7 0
        NIC0 PIX PIX PXB PXB X PXB
        NIC1 PXB PXB PIX PIX PXB X";
    let machine = machine(text);
    assert_eq!(machine.partitions(), [vec![0b0011, 0b1100], vec![0b1111]]);
    assert_eq!(rails(&machine), [Some(0), Some(0), Some(1), Some(1)]);
}

#[test]
fn glued_cells_wrapped_headers_and_a_preamble() {
    let text = "\
        GPU0 is in use by another program\n\
        GPU0 SYSTEM check passed\n\n\
        \tGPU0GPU1\tNIC0NIC1\n\
        CPU\n\
        Affinity\tNUMA Affinity\n\
        GPU0\t X NV12PXBSYS\t0-3\t0\n\
        GPU1\tNV12 X SYSPIX\t4-7\t1\n";
    let matrix = Matrix::parse(text).unwrap();
    assert_eq!((matrix.link(0, 1), matrix.link(0, 2)), (Some(Link::NvLink(12)), Some(Link::Pxb)));
    assert_eq!((matrix.link(1, 2), matrix.link(1, 3)), (Some(Link::Sys), Some(Link::Pix)));
    assert_eq!(matrix.affinity(1).unwrap().numa, Some(1));
}

#[test]
fn old_drivers_say_soc() {
    let matrix = Matrix::parse("GPU0 GPU1 CPU Affinity\nGPU0 X SOC 0-3\nGPU1 SOC X 4-7\n").unwrap();
    assert_eq!(matrix.link(0, 1), Some(Link::Sys));
    assert_eq!(gpu_sockets(&matrix.to_machine(hardware()).unwrap()), [Some(0), Some(1)]);
}

const HEADER: &str = "GPU0 GPU1 CPU Affinity NUMA Affinity GPU NUMA ID\n";

#[test]
fn what_is_not_a_matrix_is_refused() {
    for text in ["", "GPU0 is fine\n", "No devices were found\n", "GPU0 X 0-3\n", HEADER] {
        assert_eq!(refused(text), MatrixError::NoMatrix, "{text:?}");
    }
    assert!(matches!(
        refused("GPU0 GPU2 CPU Affinity\nGPU0 X SYS 0\n"),
        MatrixError::GpuOrder { line: 1, expected: 1, .. }
    ));
    let twice = "GPU0 NIC0 NIC0 CPU Affinity\nGPU0 X SYS SYS 0\n";
    assert!(matches!(refused(twice), MatrixError::DuplicateColumn { line: 1, .. }));
}

#[test]
fn rows_that_slipped_are_refused_with_their_line() {
    let rows = |rows: &str| refused(&format!("{HEADER}{rows}"));
    assert!(matches!(rows("GPU0 X SYS 0-3 0 N/A\n"), MatrixError::MissingRow { .. }));
    assert!(matches!(
        rows("GPU0 X SYS 0-3 0 N/A\nGPU1 SYS 0-3 0 N/A\n"),
        MatrixError::LinkCount { line: 3, found: 1, .. }
    ));
    let one_more = "GPU0 X SYS PIX 0-3 0 N/A\n";
    assert!(matches!(rows(one_more), MatrixError::LinkCount { line: 2, found: 3, expected: 2, .. }));
    assert!(matches!(rows("GPU0 X FAR 0-3 0 N/A\n"), MatrixError::BadLink { line: 2, .. }));
    let twice = "GPU0 X SYS 0-3 0 N/A\nGPU0 X SYS 0-3 0 N/A\n";
    assert!(matches!(rows(twice), MatrixError::DuplicateRow { line: 3, .. }));
    let swapped = "GPU0 X SYS 0-3 0 N/A\nGPU1 X SYS 4-7 1 N/A\n";
    assert!(matches!(rows(swapped), MatrixError::Diagonal { line: 3, .. }));
    let to_nic = "GPU0 NIC0 CPU Affinity\nGPU0 X NV4 0\n";
    assert!(matches!(refused(to_nic), MatrixError::NvLinkToNic { line: 2, .. }));
    let one_way = "GPU0 X PIX 0-3 0 N/A\nGPU1 SYS X 4-7 1 N/A\n";
    assert!(matches!(rows(one_way), MatrixError::Asymmetric { line: 3, other_line: 2, .. }));
}

#[test]
fn affinity_that_cannot_be_told_apart_is_refused() {
    let rows = |row: &str| refused(&format!("{HEADER}GPU0 X SYS {row}\nGPU1 SYS X 4-7 1 N/A\n"));
    // Empty CPU cell or glued NUMA number: without tabs nobody can say.
    assert!(matches!(rows("0 N/A"), MatrixError::AffinityCount { line: 2, found: 2, expected: 3, .. }));
    assert!(matches!(rows("0-3 zero N/A"), MatrixError::Numa { line: 2, .. }));
    let too_large = rows("0-3,96-1430 0 N/A");
    assert!(matches!(too_large, MatrixError::CpuList { line: 2, source: CpuListError::TooLarge { .. }, .. }));
    let glued = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\t0-30\t0\nGPU1\tSYS\tX\t4-7\t1\n";
    let overlapping = Matrix::parse(glued).unwrap().to_machine(hardware());
    assert!(matches!(overlapping, Err(MatrixError::OverlappingCpus { gpu: 0, other: 1, .. })));
}

#[test]
fn more_nics_than_a_machine_may_have_are_refused() {
    let nics: String = (0..300).map(|nic| format!("NIC{nic} ")).collect();
    let text = format!("GPU0 {nics} CPU Affinity\nGPU0 X {} 0-3\n", "PIX ".repeat(300));
    let error = Matrix::parse(&text).unwrap().to_machine(hardware()).unwrap_err();
    assert!(matches!(error, MatrixError::Machine(MachineError::TooMany { what: "NICs", count: 300, .. })), "{error}");
}

#[test]
fn given_sockets_must_agree_with_the_text() {
    let matrix = Matrix::parse(sample!("split-header")).unwrap();
    let mut given = hardware();
    given.sockets = Some(machine(sample!("split-header")).sockets[..3].to_vec());
    assert_eq!(matrix.to_machine(given.clone()), Err(MatrixError::UnknownNuma { gpu: 0, numa: 3 }));
    let mut all = machine(sample!("split-header")).sockets.clone();
    all[3].cpus = "48-63".parse().unwrap();
    given.sockets = Some(all);
    assert!(matches!(matrix.to_machine(given), Err(MatrixError::CpusOutsideSocket { gpu: 0, numa: 3, .. })));
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test over files that the clone does not carry")]
fn every_sample_of_a_larger_set_reads() {
    let Ok(shared) = std::env::var("GANGER_SHARED") else {
        println!("skipped: GANGER_SHARED names no folder");
        return;
    };
    let mut count = 0;
    for entry in std::fs::read_dir(format!("{shared}/data/topology")).unwrap() {
        let file = entry.unwrap().path().join("topo-m.txt");
        if file.is_file() {
            let text = std::fs::read_to_string(&file).unwrap();
            let matrix = Matrix::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let machine = matrix.to_machine(hardware()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert_eq!(machine.gpus.len(), matrix.gpu_count());
            count += 1;
        }
    }
    assert!(count > 0, "no topo-m.txt below {shared}/data/topology");
    println!("{count} samples read");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_text_is_read_or_refused_but_never_a_panic(
        cuts in prop::collection::vec((0usize..2000, 0usize..12, "[ \\t\nXNPG0-9,;\u{1b}é-]{0,4}"), 1..6),
    ) {
        for sample in [sample!("escape-after-tab-empty-cpus"), sample!("nic-shared-by-two"), sample!("peer-matrix-follows")] {
            let mut text: Vec<char> = sample.chars().collect();
            for (at, length, inserted) in &cuts {
                let at = at % text.len().max(1);
                let end = (at + length).min(text.len());
                text.splice(at.min(end)..end, inserted.chars());
            }
            let text: String = text.into_iter().collect();
            if let Ok(matrix) = Matrix::parse(&text) {
                let symmetric = |one, other| matrix.link(one, other) == matrix.link(other, one);
                prop_assert!((0..matrix.gpu_count()).all(|one| (0..matrix.gpu_count()).all(|other| symmetric(one, other))));
                // Whatever was read is a whole machine or an error.
                let _ = matrix.to_machine(hardware());
            }
        }
    }
}
