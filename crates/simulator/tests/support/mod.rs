//! What several tests of replays need.
use ganger_simulator::replay::readers::muri;
use ganger_simulator::replay::trace::Trace;

/// Jobs of an unmeasured model, whose start costs 10 s: GPUs, submission in s, iterations of 1.015 s.
pub fn trace(jobs: &[(u32, u64, u64)]) -> Trace {
    let mut text = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n".to_string();
    for (id, (gpus, submit_s, iterations)) in jobs.iter().enumerate() {
        // An iteration of 1000 ms takes 1015 ms.
        text += &format!("{id},{gpus},{},{iterations},none,1000\n", submit_s * 1_000);
    }
    muri::jobs("by hand", &text).unwrap()
}
