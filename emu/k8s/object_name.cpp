// Most names of objects are domains (RFC 1123). Others are shorter or of fewer characters, because
// something else is made of them, which has a narrower rule.
#include "emu/k8s/object_name.hpp"

namespace weft::k8s {

bool NameRule::allows(const std::string& name) const {
  constexpr auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  constexpr auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.empty() || name.size() > longest || (begins_with_letter && !is_letter(name.front()))) {
    return false;
  }
  const std::string between_dots = "." + name + ".";
  for (std::size_t i = 1; i <= name.size(); ++i) {
    const char c = between_dots[i];
    const bool is_inside = between_dots[i - 1] != '.' && between_dots[i + 1] != '.';
    if (!is_letter(c) && !is_digit(c) && !(is_inside && (c == '-' || (c == '.' && has_dots)))) {
      return false;
    }
  }
  return true;
}

std::string NameRule::text() const {
  return "at most " + std::to_string(longest) + " small letters, digits" +
         (has_dots ? ", - and ., none of these two at an end or beside a dot"
                   : " and -, which is at no end") +
         (begins_with_letter ? ", with a letter at the beginning" : "") +
         ": the API server refuses it otherwise";
}

NameRule name_rule_of(const std::string& kind) {
  if (kind == "Service") {
    return {.begins_with_letter = true};  // a host in DNS (RFC 1035)
  }
  if (kind == "Job") {
    return {.has_dots = true};  // a label of its pods has it as its value
  }
  if (kind == "CronJob") {
    return {.longest = 52, .has_dots = true};  // its Jobs have eleven characters more
  }
  return {.longest = 253, .has_dots = true};
}

}  // namespace weft::k8s
