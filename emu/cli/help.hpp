// Owns what the commands' help says above and below the list of options: the files help/*.txt.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace weft::cli {

// The command `name`, with the text of help/<name>.txt: its first line says what the command is
// for, and what follows the empty line after it stands below the options.
CLI::App* add_command(CLI::App& program, const std::string& name);

}  // namespace weft::cli
