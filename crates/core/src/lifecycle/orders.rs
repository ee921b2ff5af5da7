//! What each node is told: its whole desired set, made from the state alone.
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::{Attempt, AttemptPhase, Job, Place, Task, Worker, WorkerPhase};
use crate::model::time::Time;
use crate::model::wire::agent::{Action, Devices, Launch, Order, RankSite, TaskSite};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Orders of one node, sorted by job, attempt, rank. Workers that ended are not named: their agent may forget them.
pub fn orders(cluster: &Cluster, id: NodeId) -> Vec<Order> {
    let node = cluster.node(id);
    let mut launches: BTreeMap<crate::model::JobId, Arc<Launch>> = BTreeMap::new();
    let mut orders = Vec::new();
    for (job, rank) in &node.tenants {
        let Some(job) = cluster.job(*job) else { continue };
        let Some(attempt) = &job.attempt else { continue };
        let Some(worker) = attempt.workers.get(rank.0 as usize) else { continue };
        let launch = launches.entry(job.id).or_insert_with(|| Arc::new(launch(cluster, job, attempt)));
        orders.push(order(cluster, job, attempt, worker, launch.clone()));
    }
    orders.extend(node.strays.iter().map(|stray| Order {
        job: stray.job,
        attempt: stray.attempt,
        rank: stray.rank,
        action: Action::Stop { grace: false, deadline: cluster.now, why: "no order names it".to_string() },
        launch: Arc::new(Launch::nothing()),
        devices: Devices {
            gpus: bits(stray.gpus),
            cpus: stray.cpus,
            memory: Vec::new(),
            nics: Vec::new(),
            slice: None,
        },
    }));
    orders.sort_by_key(|order| (order.job, order.attempt, order.rank));
    orders
}

fn order(cluster: &Cluster, job: &Job, attempt: &Attempt, worker: &Worker, launch: Arc<Launch>) -> Order {
    let action = match (&attempt.phase, &worker.phase) {
        (AttemptPhase::Running { .. }, WorkerPhase::Leaving { deadline }) => {
            Action::Stop { grace: true, deadline: *deadline, why: "the gang goes on without it".to_string() }
        }
        (AttemptPhase::Preparing { .. }, _) => Action::Prepare,
        (AttemptPhase::Going { .. } | AttemptPhase::Running { .. }, _) => Action::Go {
            rendezvous_address: first_address(cluster, attempt),
            rendezvous_port: attempt.rendezvous_port.unwrap_or_default(),
        },
        (AttemptPhase::Stopping(stop), _) => {
            let grace = stop.why.has_grace() && stop.deadline > stop.asked_at;
            Action::Stop { grace, deadline: stop.deadline, why: stop.why.to_string() }
        }
    };
    let devices = devices(&worker.place);
    Order { job: job.id, attempt: attempt.number, rank: worker.rank, action, launch, devices }
}

fn first_address(cluster: &Cluster, attempt: &Attempt) -> String {
    attempt.workers.first().map_or(String::new(), |worker| cluster.node(worker.place.node).address.clone())
}

fn devices(place: &Place) -> Devices {
    Devices {
        gpus: bits(place.gpus),
        cpus: place.cpus,
        memory: place.memory.clone(),
        nics: bits(place.nics),
        slice: place.slice,
    }
}

fn bits(mask: u64) -> Vec<u8> {
    (0..64).filter(|bit| mask >> bit & 1 == 1).collect()
}

fn launch(cluster: &Cluster, job: &Job, attempt: &Attempt) -> Launch {
    let mut on_node: BTreeMap<NodeId, u32> = BTreeMap::new();
    let ranks = attempt.workers.iter().map(|worker| {
        let node = cluster.node(worker.place.node);
        let local = on_node.entry(node.id).or_default();
        let local_rank = *local;
        *local += 1;
        // A process sees its part of a GPU as one.
        let gpus = worker.place.touched_gpus().count_ones();
        RankSite { node: node.name.clone(), address: node.address.clone(), gpus, local_rank }
    });
    Launch {
        name: job.spec.name.clone(),
        queue: job.spec.queue.clone(),
        owner: job.owner.clone(),
        run: job.spec.run.clone(),
        checkpoint: job.spec.checkpoint.clone(),
        resume_from: attempt.resume_from.as_ref().map(|checkpoint| checkpoint.path.clone()),
        time_limit: job.spec.time_limit,
        submitted_at: job.submitted_at,
        ranks: ranks.collect(),
        leased: true,
        task: task_site(cluster, job),
    }
}

/// The record of an array outlives its tasks.
fn task_site(cluster: &Cluster, job: &Job) -> Option<TaskSite> {
    let Task { array, index } = job.task?;
    let spec = cluster.array(array)?.spec.array.as_ref()?;
    let (count, step) = (spec.count(), spec.step());
    Some(TaskSite { array, index, count, lowest: spec.lowest(), highest: spec.highest(), step })
}

impl Launch {
    /// Of a worker that only has to end.
    fn nothing() -> Launch {
        Launch {
            name: String::new(),
            queue: String::new(),
            owner: Default::default(),
            run: Default::default(),
            checkpoint: Default::default(),
            resume_from: None,
            time_limit: None,
            submitted_at: Time(0),
            ranks: Vec::new(),
            leased: false,
            task: None,
        }
    }
}
