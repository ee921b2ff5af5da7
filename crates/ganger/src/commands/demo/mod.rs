pub async fn run(_args: crate::cli::Demo, _look: crate::output::Look) -> Result<(), crate::failure::Failure> {
    Ok(())
}
