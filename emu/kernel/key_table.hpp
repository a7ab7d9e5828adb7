// Owns the text form of plain structs: one "key value" per line, which a preloaded library can read
// without linking a parser.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace weft::kernel {

// One member of T and its name in the text.
template <class T>
struct Key {
  std::string_view name;
  std::variant<std::string T::*, std::uint32_t T::*, bool T::*> member;
};

// One line per key, in the order of `keys`.
template <class T>
[[nodiscard]] std::string to_text(const T& from,
                                  std::type_identity_t<std::span<const Key<T>>> keys) {
  struct Printer {
    const T& from;
    std::string operator()(std::string T::*member) const { return from.*member; }
    std::string operator()(std::uint32_t T::*member) const { return std::to_string(from.*member); }
    std::string operator()(bool T::*member) const { return from.*member ? "true" : "false"; }
  };
  std::string text;
  for (const Key<T>& key : keys) {
    text.append(key.name).append(" ").append(std::visit(Printer{from}, key.member)).append("\n");
  }
  return text;
}

enum class Taken { yes, unknown_key, bad_value };

// Sets the member that the line names. A bad value may leave it changed.
template <class T>
[[nodiscard]] Taken take_line(T& to, std::type_identity_t<std::span<const Key<T>>> keys,
                              std::string_view line) {
  struct Parser {
    T& to;
    std::string_view value;
    bool operator()(std::string T::*member) const {
      to.*member = value;
      return !value.empty();
    }
    bool operator()(std::uint32_t T::*member) const {
      const char* const end = value.data() + value.size();
      const auto read = std::from_chars(value.data(), end, to.*member);
      return read.ec == std::errc{} && read.ptr == end;
    }
    bool operator()(bool T::*member) const {
      to.*member = value == "true";
      return value == "true" || value == "false";
    }
  };
  const std::size_t space = line.find(' ');
  const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key<T>& candidate) {
    return candidate.name == line.substr(0, space);
  });
  if (key == keys.end()) {
    return Taken::unknown_key;
  }
  const auto value = space == std::string_view::npos ? std::string_view{} : line.substr(space + 1);
  return std::visit(Parser{to, value}, key->member) ? Taken::yes : Taken::bad_value;
}

// Calls visit(line number, line) for each line that is not empty, until it returns false.
template <class Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && !visit(number, line)) {
      return;
    }
  }
}

}  // namespace weft::kernel
