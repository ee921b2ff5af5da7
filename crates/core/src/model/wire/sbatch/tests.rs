//! Scripts as they are found in the wild, and every refusal.
use super::*;

fn read_lines(lines: &str, body: &str) -> Result<Script, Vec<SbatchError>> {
    read(&format!("#!/bin/bash\n{lines}\n\n{body}\n#SBATCH --ignored-after-the-first-command\n"), "script.sh")
}

fn shape(script: &Script) -> (i64, Option<i64>, Option<i64>, Option<&str>) {
    let resources = script.job.resources.as_ref().unwrap();
    let workers = script.job.gang.as_ref().unwrap().workers.unwrap();
    (workers, resources.gpus, resources.cpus, resources.memory.as_deref())
}

#[test]
fn a_single_node_script_runs_once_with_all_that_it_asks_for() {
    let script = read_lines(
        "#SBATCH -J train -N 1\n#SBATCH --ntasks-per-node=8   # eight\n#SBATCH --gres=gpu:h100:8 -c 12\n#SBATCH --mem=64G\n#SBATCH -t 1-12:00:00",
        "torchrun --nproc-per-node=8 train.py",
    )
    .unwrap();
    assert_eq!(shape(&script), (1, Some(8), Some(96), Some("68719476736")));
    assert_eq!((script.job.name.as_str(), script.job.time.as_deref()), ("train", Some("129600s")));
    assert_eq!(script.job.resources.as_ref().unwrap().gpu_model.as_deref(), Some("h100"));
    let Command::Arguments(command) = &script.job.command else { panic!("a list") };
    assert_eq!((command[0].as_str(), command[1].as_str(), command[3].as_str()), ("/bin/bash", "-c", "train"));
    assert!(command[2].starts_with("#!/bin/bash\n"), "nothing is added to a script that runs once");
    let spec = script.job.clone().into_spec(&|_| None).unwrap();
    assert_eq!((spec.gang.workers, spec.shape.gpus), (1, 8));
}

#[test]
fn with_only_nodes_there_is_one_task_per_node() {
    let script = read_lines("#SBATCH -N 2\n#SBATCH --gpus-per-node=8", "srun torchrun train.py").unwrap();
    assert_eq!(shape(&script), (2, Some(8), None, None));
}

#[test]
fn srun_makes_each_task_a_worker_with_its_share_of_the_node() {
    let script = read_lines(
        "#SBATCH --nodes=2 --ntasks-per-node=4\n#SBATCH --gres=gpu:8\n#SBATCH --mem=64G",
        "srun python x.py",
    )
    .unwrap();
    assert_eq!(shape(&script), (8, Some(2), None, Some("17179869184")));
    let Command::Arguments(command) = &script.job.command else { panic!("a list") };
    assert!(command[2].starts_with("srun() {") && command[2].lines().next().unwrap().ends_with("#!/bin/bash"));
    let script = read_lines("#SBATCH -n16 -G16 --cpus-per-gpu=6 --mem-per-gpu=32G", "x=$(srun hostname)").unwrap();
    assert_eq!(shape(&script), (16, Some(1), Some(6), Some("34359738368")));
}

#[test]
fn tasks_are_spread_evenly_over_the_nodes_that_are_asked_for() {
    let each = |lines: &str| {
        let script = read_lines(lines, "srun python x.py").unwrap();
        let workers = script.job.gang.as_ref().unwrap().workers.unwrap();
        (workers, script.job.topology.and_then(|topology| topology.ranks_per_node))
    };
    assert_eq!(each("#SBATCH -N 2"), (2, Some(1)));
    assert_eq!(each("#SBATCH -N 2 -n 8"), (8, Some(4)));
    assert_eq!(each("#SBATCH -N 1 -n 8"), (8, Some(8)), "all on one");
    assert_eq!(each("#SBATCH -n 6 --ntasks-per-node=2"), (6, Some(2)));
    assert_eq!(each("#SBATCH -n 6 --ntasks-per-node=4"), (6, Some(3)), "at most four on each");
    assert_eq!(each("#SBATCH -n 8"), (8, None), "wherever there is room");
    for uneven in ["#SBATCH -N 3 -n 8", "#SBATCH -n 7 --ntasks-per-node=4"] {
        let errors = read_lines(uneven, "srun python x.py").unwrap_err();
        assert!(errors[0].what == "--ntasks" && errors[0].problem.contains("cannot be spread evenly"), "{errors:?}");
    }
}

#[test]
fn the_other_flags_find_their_fields() {
    let script = read_lines(
        "#SBATCH --account=research/nlp -p training --qos=P1\n#SBATCH --signal=B:USR1@120\n#SBATCH --dependency=afterok:12:13,afterany:14\n#SBATCH -o logs/%x-%j.out -D /data\n#SBATCH --export=A=1,B=x --requeue --comment='my note'",
        "true",
    )
    .unwrap();
    let job = &script.job;
    assert_eq!(
        (job.queue.as_deref(), job.pool.as_deref(), job.priority.as_deref()),
        (Some("research/nlp"), Some("training"), Some("P1"))
    );
    let checkpoint = job.checkpoint.as_ref().unwrap();
    assert_eq!((checkpoint.signal.as_deref(), checkpoint.grace.as_deref()), (Some("SIGUSR1"), Some("120s")));
    assert_eq!(job.after, ["afterok:12", "afterok:13", "afterany:14"]);
    assert_eq!(read_lines("#SBATCH --array=0-9%2", "true").unwrap().job.array.unwrap().0, "0-9%2");
    assert_eq!((job.output.as_deref(), job.workdir.as_deref()), (Some("logs/%x-%j.out"), Some("/data")));
    assert_eq!((job.env["A"].as_str(), script.export_all), ("1", false));
    assert!(read_lines("", "true").unwrap().export_all, "Slurm's default");
    assert!(read_lines("#SBATCH --export=ALL,A=1", "true").unwrap().export_all);
    assert_eq!(read_lines("", "true").unwrap().job.name, "script.sh");
}

#[test]
fn what_has_no_effect_is_passed_over_with_a_warning() {
    let script =
        read_lines("#SBATCH --mail-user=me@x --mail-type END\n#SBATCH -Q -N 1\n#SBATCH --open-mode=append", "true")
            .unwrap();
    let said: Vec<(usize, &str)> = script.warnings.iter().map(|(line, text)| (*line, text.as_str())).collect();
    assert_eq!(said.iter().map(|(line, _)| *line).collect::<Vec<_>>(), [2, 2, 3, 4]);
    assert!(said[0].1.starts_with("--mail-user has no effect here: Ganger sends no mail"), "{said:?}");
    assert_eq!(shape(&script).0, 1, "the flags beside them are read");
    assert!(read_lines("#SBATCH -N 1", "true").unwrap().warnings.is_empty());
}

#[test]
fn a_script_is_found_again_in_its_command_without_what_was_added() {
    for body in ["srun python x.py", "true"] {
        let script = read_lines("#SBATCH -n 2", body).unwrap();
        let Command::Arguments(command) = &script.job.command else { panic!("a list") };
        let text = script_of(command).unwrap();
        assert!(text.starts_with("#!/bin/bash\n#SBATCH -n 2\n\n") && text.contains(body), "{text}");
    }
    let words = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    assert_eq!(script_of(&words(&["bash", "-c", "echo hi"])), None);
    assert_eq!(script_of(&words(&["python", "-c", "print(1)", "x"])), None);
    assert_eq!(script_of(&words(&["true"])), None);
}

#[test]
fn what_would_be_ignored_is_refused_with_line_and_flag() {
    for (what, line) in [
        ("--array", "#SBATCH -a 0-9,3%2"),
        ("--exclusive", "#SBATCH --exclusive"),
        ("--constraint", "#SBATCH -C a100"),
        ("--nodelist", "#SBATCH -w n0"),
        ("--error", "#SBATCH -e x.err"),
        ("--no-requeue", "#SBATCH --no-requeue"),
        ("--switches", "#SBATCH --switches=1@60"),
        ("--hold", "#SBATCH -H"),
        ("--K", "#SBATCH -K"),
        ("--gpu-bind", "#SBATCH --gpu-bind=none"),
        ("--nodes", "#SBATCH -N 2-4"),
        ("--nodes", "#SBATCH -N"),
        ("--nodes", "#SBATCH -N 2"),
        ("--ntasks", "#SBATCH -n 0"),
        ("--ntasks", "#SBATCH -N 4 -n 2"),
        ("--ntasks", "#SBATCH -N 2 -n 8 --ntasks-per-node=2"),
        ("--qos", "#SBATCH --qos=high"),
        ("--time", "#SBATCH -t 12h"),
        ("--mem", "#SBATCH --mem=0"),
        ("--gres", "#SBATCH --gres=shard:4"),
        ("--gpus", "#SBATCH -n 3 --gpus=4"),
        ("--signal", "#SBATCH --signal=KILL@10"),
        ("--dependency", "#SBATCH -d singleton"),
        ("--export", "#SBATCH --export=HOME"),
        ("2", "#SBATCH 2"),
    ] {
        let body = if what == "--gpus" { "srun x" } else { "x" };
        let errors = read_lines(line, body).unwrap_err();
        assert!(errors.iter().any(|e| e.what == what && e.line == 2 && !e.fix.is_empty()), "{line}: {errors:?}");
    }
    let errors = read("#!/usr/bin/perl\nprint 1", "x").unwrap_err();
    assert!(errors[0].to_string().contains("line 1: #!/usr/bin/perl: scripts are run by bash"), "{}", errors[0]);
    assert!(read_lines("#SBATCH -J 'x", "true").unwrap_err()[0].problem.contains("quote"));
}

#[test]
fn a_mig_instance_is_a_type_of_gpu() {
    let script = read_lines("#SBATCH -n 4 --gpus-per-task=1g.10gb:1", "srun python serve.py").unwrap();
    let resources = script.job.resources.unwrap();
    assert_eq!((resources.gpus, resources.gpu_model, resources.mig.as_deref()), (None, None, Some("1g.10gb")));
    let error = read_lines("#SBATCH --gres=gpu:3g.40gb:2", "python train.py").unwrap_err();
    assert!(error.iter().any(|error| error.to_string().contains("a process can use one")), "{error:?}");
}
