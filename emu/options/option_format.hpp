// Owns how a program's help shows an option.
#pragma once

#include <CLI/CLI.hpp>
#include <set>
#include <string>

namespace weft::options {

// What stands behind an option's name: its type, default and number. Versions of CLI11 differ
// there, and the manual pages, which are made from the help, are to be the same everywhere.
class OptionFormat : public CLI::Formatter {
 public:
  [[nodiscard]] std::string make_option_opts(const CLI::Option* option) const override {
    // A flag has no type, and of its default only some versions know.
    const std::string text = option->get_type_name().empty() ? "" : value_of(*option);
    return text + names_of("Needs", option->get_needs()) +
           names_of("Excludes", option->get_excludes());
  }

 private:
  [[nodiscard]] std::string names_of(const char* label,
                                     const std::set<CLI::Option*>& options) const {
    std::set<std::string> names;  // in an order that does not depend on addresses
    for (const CLI::Option* const one : options) {
      names.insert(one->get_name());
    }
    std::string text = names.empty() ? "" : " " + get_label(label) + ":";
    for (const std::string& name : names) {
      text += " " + name;
    }
    return text;
  }
  [[nodiscard]] std::string value_of(const CLI::Option& option) const {
    std::string text = " " + get_label(option.get_type_name());
    if (!option.get_default_str().empty()) {
      text += "=" + option.get_default_str();
    }
    if (option.get_expected_max() == CLI::detail::expected_max_vector_size) {
      text += " ...";
    }
    if (option.get_required()) {
      text += " " + get_label("REQUIRED");
    }
    return text;
  }
};

}  // namespace weft::options
