// Owns `weft completions`: what shells need to complete weft's command lines, made from the
// program's own commands and options.
//
// All commands are registered as in any run of weft, and CLI11 is asked for what it knows of them;
// each shell then has a printer of its own.
#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "emu/cli/commands.hpp"
#include "emu/cli/help.hpp"

namespace weft::cli {
namespace {

// A word that can be completed, with a description for the shells that show one.
struct Word {
  std::string name;
  std::string about;
};
struct Command {
  Word word;
  std::vector<Word> options;  // with those of its parts
  std::vector<Word> parts;    // as in `weft lab up`
};

// The first line of a text, safe within the quoted strings of all three shells: a character that
// would end the string there, or divide its fields, becomes a blank.
std::string first_sentence(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, text.find('\n'))) {
    out += c == '\'' || c == '"' || c == '`' || c == '[' || c == ']' || c == ':' ? ' ' : c;
  }
  return out;
}

// Adds the long and short names of the options of a command or of a part of it.
void add_options(Command& command, const CLI::App& app) {
  const auto add = [&](const std::string& name, const CLI::Option& option) {
    const auto same = [&](const Word& word) { return word.name == name; };
    if (std::ranges::none_of(command.options, same)) {  // parts may have the same ones
      command.options.push_back({name, first_sentence(option.get_description())});
    }
  };
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      add("--" + name, *option);
    }
    for (const std::string& name : option->get_snames()) {
      add("-" + name, *option);
    }
  }
}

// All commands as CLI11 knows them, so that completions never lag behind the program.
std::vector<Command> commands_of(const CLI::App& program) {
  std::vector<Command> commands;
  for (const CLI::App* app : program.get_subcommands({})) {
    Command command{{app->get_name(), first_sentence(app->get_description())}, {}, {}};
    add_options(command, *app);
    for (const CLI::App* part : app->get_subcommands({})) {
      command.parts.push_back({part->get_name(), first_sentence(part->get_description())});
      add_options(command, *part);
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string names(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) {
    text += (text.empty() ? "" : " ") + word.name;
  }
  return text;
}

// Names only: bash shows no descriptions. After `--` follow the words of another program, which are
// completed as files.
void print_bash(const std::vector<Command>& commands) {
  std::string all;
  for (const Command& command : commands) {
    all += (all.empty() ? "" : " ") + command.word.name;
  }
  fmt::print(
      R"(_weft() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} i options= parts=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{} --help --version' -- "$word")
    return
  fi
  for ((i = 2; i < COMP_CWORD; ++i)); do [[ ${{COMP_WORDS[i]}} == -- ]] && return; done
  case ${{COMP_WORDS[1]}} in
)",
      all);
  for (const Command& command : commands) {
    fmt::print("    {}) options='{}'", command.word.name, names(command.options));
    if (!command.parts.empty()) {
      fmt::print(" parts='{}'", names(command.parts));
    }
    fmt::print(" ;;\n");
  }
  fmt::print(
      R"(  esac
  if ((COMP_CWORD == 2)) && [[ -n $parts && $word != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$parts" -- "$word")
    return
  fi
  [[ $word != -* ]] || mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
}}
complete -o default -F _weft weft
)");
}

// Works both as a file in $fpath, where zsh runs it as the function _weft, and with `eval`, where
// it has to announce itself: hence its last line.
void print_zsh(const std::vector<Command>& commands) {
  fmt::print(R"(#compdef weft
_weft() {{
  local -a commands
  commands=(
)");
  for (const Command& command : commands) {
    fmt::print("    '{}:{}'\n", command.word.name, command.word.about);
  }
  fmt::print(
      R"(  )
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  case ${{words[2]}} in
)");
  for (const Command& command : commands) {
    fmt::print("    {}) _arguments", command.word.name);
    if (!command.parts.empty()) {
      fmt::print(" '2:part:({})'", names(command.parts));
    }
    for (const Word& option : command.options) {
      fmt::print(" '{}[{}]'", option.name, option.about);
    }
    fmt::print(" '*:file:_files' ;;\n");
  }
  fmt::print(
      R"(  esac
}}
if [[ $funcstack[1] == _weft ]]; then _weft "$@"; else compdef _weft weft; fi
)");
}

// fish reads one line for each word: when it applies, and its description.
void print_fish(const std::vector<Command>& commands) {
  for (const Command& command : commands) {
    fmt::print("complete -c weft -n __fish_use_subcommand -f -a {} -d '{}'\n", command.word.name,
               command.word.about);
    for (const Word& part : command.parts) {
      fmt::print("complete -c weft -n '__fish_seen_subcommand_from {}' -f -a {} -d '{}'\n",
                 command.word.name, part.name, part.about);
    }
    for (const Word& option : command.options) {
      const bool is_long = option.name.starts_with("--");
      fmt::print("complete -c weft -n '__fish_seen_subcommand_from {}' {} {} -d '{}'\n",
                 command.word.name, is_long ? "-l" : "-s", option.name.substr(is_long ? 2 : 1),
                 option.about);
    }
  }
}

}  // namespace

void register_completions(CLI::App& program, Work& work) {
  CLI::App* command = add_command(program, "completions");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&work, &program, shell] {
    work = [&program, shell] {
      const auto commands = commands_of(program);
      if (*shell == "bash") {
        print_bash(commands);
      } else if (*shell == "zsh") {
        print_zsh(commands);
      } else {
        print_fish(commands);
      }
      return kSuccess;
    };
  });
}

}  // namespace weft::cli
