// Owns what the commands' help says above and below the list of options: the files help/*.txt.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace weft::cli {

// The command `name`, with the text of help/<name>.txt: its first line says what the command is
// for, and what follows the empty line after it stands below the options. A command without such a
// text is a mistake of the program, and aborts it.
CLI::App* add_command(CLI::App& program, const std::string& name);

}  // namespace weft::cli
