// Owns which names the API server takes.
#pragma once

#include <cstddef>
#include <string>

namespace weft::k8s {

// What a name may be: of small letters, digits and dashes, with one of the first two at both ends.
struct NameRule {
  std::size_t longest = 63;
  bool has_dots = false;  // with a letter or a digit on both sides of each
  bool begins_with_letter = false;

  [[nodiscard]] bool allows(const std::string& name) const;
  // Whether it may be a generateName, whatever name becomes of it.
  [[nodiscard]] bool allows_beginning(const std::string& beginning) const;
  // The rule as a remedy.
  [[nodiscard]] std::string text() const;
  [[nodiscard]] std::string text_of_beginnings() const;
};

// What of a generateName is in the name that the API server makes of it, and such a name.
[[nodiscard]] std::string kept_of_generate_name(const std::string& beginning);
[[nodiscard]] std::string name_generated_from(const std::string& beginning);

// Of namespaces, of containers and of volumes: a label of DNS (RFC 1123).
inline constexpr NameRule kLabelRule{};

// Of the objects of a kind.
[[nodiscard]] NameRule name_rule_of(const std::string& kind);

}  // namespace weft::k8s
