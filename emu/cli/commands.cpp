// Owns the order in which the commands appear in the program's help: first steps, networks that
// stay, what troubles them, measurements, virtual time, and at last what few need.
#include "emu/cli/commands.hpp"

namespace weft::cli {

void register_commands(CLI::App& program, Work& work) {
  register_demo(program, work);
  register_doctor(program, work);
  register_run(program, work);
  register_matrix(program, work);
  register_up(program, work);
  register_down(program, work);
  register_status(program, work);
  register_exec(program, work);
  register_env(program, work);
  register_cdi(program, work);
  register_lab(program, work);
  register_k8s(program, work);
  register_impair(program, work);
  register_fault(program, work);
  register_heal(program, work);
  register_capture(program, work);
  register_perf(program, work);
  register_nccl_perf(program, work);
  register_ep_perf(program, work);
  register_step_perf(program, work);
  register_sim(program, work);
  register_swarm(program, work);
  register_validate(program, work);
  register_softroce(program, work);
  register_bench(program, work);
  register_completions(program, work);
}

}  // namespace weft::cli
