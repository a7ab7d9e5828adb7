// Owns adding a command with its help text. The texts are built in by CMake, from help/*.txt.
#include "emu/cli/help.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <weft/help_texts.hpp>

#include "srd/base/check.hpp"

namespace weft::cli {

CLI::App* add_command(CLI::App& program, const std::string& name) {
  const HelpText* const help =
      std::ranges::find(kHelpTexts, std::string_view(name), &HelpText::name);
  WEFT_CHECK(help != std::end(kHelpTexts));
  const std::string text = help->text;
  const std::size_t about = text.find("\n\n");
  CLI::App* const command = program.add_subcommand(name, text.substr(0, about));
  // Without the empty line in front of it and the line end at its end.
  command->footer(text.substr(about + 2, text.size() - about - 3));
  return command;
}

}  // namespace weft::cli
