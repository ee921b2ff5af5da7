//! Words of the commands about nodes, queues, events and tokens.
use clap::{Args, Subcommand, ValueEnum};
use ganger_core::model::wire::api::Role;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Nodes {
    /// Only these.
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Topo {
    /// Draw this node; without it the cluster.
    #[arg(conflicts_with_all = ["from", "profile"])]
    pub node: Option<String>,
    /// Draw the machine that this `nvidia-smi topo -m` output describes; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub from: Option<PathBuf>,
    /// The GPU model of --from, which the text does not tell, such as H100.
    #[arg(long, value_name = "MODEL", requires = "from")]
    pub gpu_model: Option<String>,
    /// Draw a machine profile, such as dgx-h100.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
}

#[derive(Debug, Args)]
pub struct Top {
    /// Again every so often until Ctrl-C, such as 10s; a bare number is seconds. As JSON one line each time.
    #[arg(short, long, value_name = "TIME", num_args = 0..=1, default_missing_value = "2s", value_parser = super::pause)]
    pub watch: Option<ganger_core::model::Span>,
}

#[derive(Debug, Args)]
pub struct Usage {
    /// Only this queue and those below it.
    #[arg(short, long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only this user, where a budget has a part for each.
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
}

#[derive(Debug, Args)]
pub struct OneNode {
    pub node: String,
}

#[derive(Debug, Args)]
#[command(
    after_help = "What saves is told in time; what is left at that moment is asked to leave then. `ganger uncordon` \
strikes what is planned."
)]
pub struct Drain {
    pub node: String,
    /// When maintenance begins, such as 2026-12-01T08:00:00Z; without it now.
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// How long it lasts, such as 2h; then the node takes work again by itself.
    #[arg(long = "for", value_name = "TIME", requires = "at")]
    pub lasts: Option<String>,
}

#[derive(Debug, Args)]
pub struct Quarantine {
    pub node: String,
    /// Why, for those who come after.
    #[arg(long, value_name = "TEXT", default_value = "by hand")]
    pub cause: String,
    /// You vouch that nothing of Ganger runs there any more: its ranks may start elsewhere at once.
    #[arg(long)]
    pub fenced: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "The file: docs/reference/cluster.md in the source tree.")]
pub struct Queues {
    #[command(subcommand)]
    pub command: Option<QueuesCommand>,
}

#[derive(Debug, Subcommand)]
pub enum QueuesCommand {
    /// Apply a file (YAML), or - for standard input. What it does not name stays as it is.
    Apply { file: PathBuf },
    /// Remove queues that nothing needs any more: no job, no queue below, no pool lent to it.
    #[command(visible_alias = "delete")]
    Remove {
        #[arg(required = true, value_name = "QUEUE")]
        queues: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "The file: docs/reference/cluster.md in the source tree.")]
pub struct ClusterArgs {
    #[command(subcommand)]
    pub command: Option<ClusterCommand>,
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show all of it; as JSON in the form that `apply` takes. The same without a word.
    Show,
    /// Apply a file (YAML), or - for standard input. What it does not name stays as it is; a pool that it names has just
    /// the nodes that it names.
    Apply { file: PathBuf },
}

#[derive(Debug, Args)]
pub struct Events {
    /// Go on as they happen.
    #[arg(short, long)]
    pub follow: bool,
    /// Only of this job.
    #[arg(short, long)]
    pub job: Option<String>,
    /// Only of this node.
    #[arg(short, long)]
    pub node: Option<String>,
    /// Only those after this number.
    #[arg(long, value_name = "NUMBER")]
    pub since: Option<u64>,
}

#[derive(Debug, Args)]
pub struct TokenArgs {
    #[command(subcommand)]
    pub command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print its secret, this once.
    Create {
        name: String,
        /// What it may do: admin all, member own jobs, agent only what agents need.
        #[arg(long, value_enum, default_value_t = RoleWord::Member)]
        role: RoleWord,
        /// Jobs run as this user of the nodes; without it, you.
        #[arg(long)]
        user: Option<String>,
    },
    /// List tokens.
    List,
    /// Revoke a token at once.
    Revoke { name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RoleWord {
    Admin,
    Member,
    Agent,
}

impl From<RoleWord> for Role {
    fn from(word: RoleWord) -> Role {
        match word {
            RoleWord::Admin => Role::Admin,
            RoleWord::Member => Role::Member,
            RoleWord::Agent => Role::Agent,
        }
    }
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Directories to try as checkpoint directories.
    #[arg(value_name = "DIR")]
    pub directories: Vec<PathBuf>,
}
