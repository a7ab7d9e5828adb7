// Owns the commands of weft-demo: a program that is built in half the time, for `./weft demo`.
#include "emu/cli/commands.hpp"

namespace weft::cli {

void register_commands(CLI::App& program, Work& work) { register_demo(program, work); }

}  // namespace weft::cli
