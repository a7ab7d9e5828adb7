// Owns the contract between the program and its commands, and the list of the commands there are.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>

namespace weft::cli {

// Exit codes of every command: 0 success; 1 the command ran, and failed or found a failure; 2 the
// command line was wrong. A program that weft runs passes on its own code.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;

// The work of the command that the user named; returns the exit code. An exception that leaves it
// is reported by main() and counts as kFailure.
using Work = std::function<int()>;

// The words of the command line after the first `--`, none without one. Those of `run`, `exec`,
// `matrix`, `lab` and `softroce` are another program's, and CLI11 never sees them: it takes words
// in brackets for lists.
[[nodiscard]] std::span<char* const> words_after_dashes();

// A command lives in command_<name>.cpp, with one function
//
//   void register_<name>(CLI::App& program, Work& work);
//
// which adds the subcommand and its options to `program`, and whose callback sets `work`. Commands
// that belong together share a file (`up`, `down` and `status`; `fault` and `heal`), and a dash of
// a name is `_` in files and functions. Parsing and running are apart, so that only a wrong command
// line ends with kUsage. Declare the function here, and call it in register_commands().
void register_commands(CLI::App& program, Work& work);

void register_bench(CLI::App& program, Work& work);
void register_capture(CLI::App& program, Work& work);
void register_cdi(CLI::App& program, Work& work);
void register_completions(CLI::App& program, Work& work);
void register_demo(CLI::App& program, Work& work);
void register_doctor(CLI::App& program, Work& work);
void register_down(CLI::App& program, Work& work);
void register_env(CLI::App& program, Work& work);
void register_ep_perf(CLI::App& program, Work& work);
void register_exec(CLI::App& program, Work& work);
void register_fault(CLI::App& program, Work& work);
void register_heal(CLI::App& program, Work& work);
void register_impair(CLI::App& program, Work& work);
void register_k8s(CLI::App& program, Work& work);
void register_lab(CLI::App& program, Work& work);
void register_matrix(CLI::App& program, Work& work);
void register_nccl_perf(CLI::App& program, Work& work);
void register_perf(CLI::App& program, Work& work);
void register_run(CLI::App& program, Work& work);
void register_sim(CLI::App& program, Work& work);
void register_softroce(CLI::App& program, Work& work);
void register_status(CLI::App& program, Work& work);
void register_step_perf(CLI::App& program, Work& work);
void register_swarm(CLI::App& program, Work& work);
void register_up(CLI::App& program, Work& work);
void register_validate(CLI::App& program, Work& work);

}  // namespace weft::cli
