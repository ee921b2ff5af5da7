//! From a user's file or script to the job that is sent: paths become absolute and the environment is added here,
//! because only the user's own process knows home, directory and variables.
use crate::failure::Failure;
use crate::files::{self, Text};
use crate::output::say;
use ganger_core::model::JobId;
use ganger_core::model::wire::job::{Decimal, FieldError, JobFile};
use ganger_core::model::wire::sbatch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What the submitting process knows of itself.
#[derive(Debug, Clone, Default)]
pub struct Submitter {
    pub home: Option<PathBuf>,
    pub directory: PathBuf,
    pub env: BTreeMap<String, String>,
}

impl Submitter {
    pub fn of_process() -> Result<Submitter, Failure> {
        let fail = |error| Failure::failed(format!("cannot tell the current directory: {error}"));
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        Ok(Submitter {
            home: std::env::var_os("HOME").map(PathBuf::from),
            directory: std::env::current_dir().map_err(fail)?,
            env: env.filter(|(name, _)| is_handed_on(name)).collect(),
        })
    }

    /// Adds the variables that the job does not set itself.
    pub fn add_env(&self, job: &mut JobFile) {
        for (name, value) in &self.env {
            job.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }

    /// Makes the paths absolute; without a working directory the job gets this one.
    pub fn localise(&self, job: &mut JobFile) {
        let absolute = |path: &str| files::absolute(path, self.home.as_deref(), &self.directory).display().to_string();
        job.workdir = Some(absolute(job.workdir.as_deref().unwrap_or(".")).trim_end_matches("/.").to_string());
        if let Some(dir) = job.checkpoint.as_mut().and_then(|checkpoint| checkpoint.dir.as_mut()) {
            *dir = absolute(dir);
        }
        if let Some(output) = job.output.as_mut().filter(|output| output.starts_with('~')) {
            *output = absolute(output);
        }
    }
}

/// Secrets of Ganger, what says who a process is, and what only means something to this shell, stay here.
fn is_handed_on(name: &str) -> bool {
    let own = ["GANGER_", "SLURM_", "PMI_", "PMIX_", "OMPI_", "PET_", "TORCHELASTIC_"];
    let identity = [
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "NNODES",
        "CUDA_VISIBLE_DEVICES",
        "NVIDIA_VISIBLE_DEVICES",
        "NCCL_IB_HCA",
        "OMP_NUM_THREADS",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !identity.contains(&name)
        && !own.iter().any(|p| name.starts_with(p))
}

/// What a file asks for.
pub struct Read {
    pub job: JobFile,
    /// It is a script with `#SBATCH` lines.
    pub is_script: bool,
}

/// Reads a job file or a script, ready to be sent; `array` stands instead of what the file says.
pub fn read(path: &Path, submitter: &Submitter, array: Option<String>) -> Result<Read, Failure> {
    let text = files::read(path)?;
    let job = parse(&text, path, submitter, array)?;
    Ok(Read { job, is_script: sbatch::is_script(&text.text) })
}

fn parse(text: &Text, path: &Path, submitter: &Submitter, array: Option<String>) -> Result<JobFile, Failure> {
    let mut job: JobFile = if sbatch::is_script(&text.text) {
        let script = sbatch::read(&text.text, &script_name(path)).map_err(|errors| {
            let lines = errors
                .iter()
                .map(|error| format!("{}:{}: {}: {}; {}", text.name, error.line, error.what, error.problem, error.fix));
            Failure::wrong(lines.collect::<Vec<_>>().join("\n"))
        })?;
        for (line, warning) in &script.warnings {
            say(format!("{}:{line}: warning: {warning}", text.name));
        }
        let mut job = script.job;
        if script.export_all {
            submitter.add_env(&mut job);
        }
        job
    } else {
        files::yaml(text)?
    };
    job.array = array.map(Decimal).or(job.array);
    submitter.localise(&mut job);
    check(&job).map_err(|errors| Failure::fields(&text.name, &errors))?;
    Ok(job)
}

/// All that can be told without the server; whether the jobs it waits for exist, only the server knows.
pub fn check(job: &JobFile) -> Result<(), Vec<FieldError>> {
    job.clone().into_spec(&|_| Some(JobId(0))).map(drop)
}

/// A file's name as a job's name.
fn script_name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    as_name(&name)
}

/// Turns any text into a name that is accepted.
pub fn as_name(text: &str) -> String {
    let kept: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' }).collect();
    let kept = kept.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let kept: String = kept.chars().take(63).collect();
    match kept.chars().all(|c| c.is_ascii_digit()) {
        true => "job".to_string(),
        false => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submitter() -> Submitter {
        Submitter {
            home: Some("/home/u".into()),
            directory: "/srv/run".into(),
            env: [("CONDA_PREFIX".to_string(), "/c".to_string())].into(),
        }
    }

    fn parsed(text: &str) -> Result<JobFile, Failure> {
        parse(&Text { name: "f".into(), text: text.into() }, Path::new("dir/my job.sh"), &submitter(), None)
    }

    #[test]
    fn paths_are_made_absolute_from_where_the_user_is() {
        let job = parsed("name: j\ncommand: [x]\nworkdir: ~/w\ncheckpoint: {dir: ckpt}\noutput: o-%j.log").unwrap();
        assert_eq!(job.workdir.as_deref(), Some("/home/u/w"));
        assert_eq!(job.checkpoint.unwrap().dir.as_deref(), Some("/srv/run/ckpt"));
        assert_eq!(job.output.as_deref(), Some("o-%j.log"), "relative to the working directory");
        assert_eq!(parsed("name: j\ncommand: [x]").unwrap().workdir.as_deref(), Some("/srv/run"));
    }

    #[test]
    fn a_script_takes_its_name_from_the_file_and_its_variables_from_the_shell() {
        let job = parsed("#!/bin/bash\n#SBATCH -n1\necho hi\n").unwrap();
        assert_eq!((job.name.as_str(), job.env["CONDA_PREFIX"].as_str()), ("my-job.sh", "/c"));
        assert!(parsed("#!/bin/bash\n#SBATCH --export=NONE\nx\n").unwrap().env.is_empty());
        assert!(parsed("name: j\ncommand: [x]").unwrap().env.is_empty(), "a job file says all itself");
        let error = parsed("#!/bin/bash\n#SBATCH --exclusive\nx\n").unwrap_err();
        assert!(error.message.starts_with("f:2: --exclusive: not supported"), "{error}");
    }

    #[test]
    fn findings_are_told_with_the_files_name() {
        let error = parsed("name: j\ncommand: [x]\ntime: 90\nresources: {mig: 1g}").unwrap_err();
        assert_eq!(error.code, 2);
        let lines: Vec<&str> = error.message.lines().collect();
        assert!(
            lines[0].starts_with("f: resources.mig: \"1g\" is unknown") && lines[1].starts_with("f: time: "),
            "{error}"
        );
    }

    #[test]
    fn secrets_and_identities_stay_behind() {
        assert!(is_handed_on("PATH") && is_handed_on("LD_LIBRARY_PATH"));
        for name in ["GANGER_TOKEN", "SLURM_JOB_ID", "RANK", "BASH_FUNC_module%%", "1X", "PWD"] {
            assert!(!is_handed_on(name), "{name}");
        }
    }

    #[test]
    fn any_text_makes_a_name() {
        assert_eq!(as_name("./train it.py"), "train-it.py");
        assert_eq!(as_name("42"), "job");
        assert_eq!(as_name("---"), "job");
    }
}
