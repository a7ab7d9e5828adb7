// Most names of objects are domains (RFC 1123). Others are shorter or of fewer characters, because
// something else is made of them, which has a narrower rule.
#include "emu/k8s/object_name.hpp"

namespace weft::k8s {
namespace {

// The API server makes names of at most 63 characters, five of them its own, whatever the kind.
constexpr std::size_t kLongestGenerated = 63;
constexpr std::size_t kGeneratedLetters = 5;

// Of the domain or the label that a name is: what is shorter is so because of the whole name.
std::size_t longest_beginning(const NameRule& rule) { return rule.has_dots ? 253 : 63; }

std::string text_of_rule(const NameRule& rule, std::size_t longest, const std::string& exception) {
  return "at most " + std::to_string(longest) + " small letters, digits" +
         (rule.has_dots ? ", - and ., none of these two at an end or beside a dot"
                        : " and -, which is at no end") +
         (rule.begins_with_letter ? ", with a letter at the beginning" : "") + exception +
         ": the API server refuses it otherwise";
}

}  // namespace

std::string kept_of_generate_name(const std::string& beginning) {
  return beginning.substr(0, kLongestGenerated - kGeneratedLetters);
}

std::string name_generated_from(const std::string& beginning) {
  return kept_of_generate_name(beginning) + std::string(kGeneratedLetters, '0');
}

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

// The API server looks at a dash at the end, and at what is before it, as at one letter.
bool NameRule::allows_beginning(const std::string& beginning) const {
  NameRule rule = *this;
  rule.longest = longest_beginning(*this);
  return rule.allows(beginning.size() > 1 && beginning.ends_with('-')
                         ? beginning.substr(0, beginning.size() - 2) + "a"
                         : beginning);
}

std::string NameRule::text() const { return text_of_rule(*this, longest, ""); }

std::string NameRule::text_of_beginnings() const {
  return text_of_rule(
      *this, longest < kLongestGenerated ? longest - kGeneratedLetters : longest_beginning(*this),
      " (but - may be the last)");
}

NameRule name_rule_of(const std::string& kind) {
  if (kind == "Service") {
    return {.begins_with_letter = true};  // a host in DNS (RFC 1035)
  }
  if (kind == "StatefulSet") {
    return kLabelRule;  // its pods are hosts
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
