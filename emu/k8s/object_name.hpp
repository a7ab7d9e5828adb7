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
  // The rule as a remedy.
  [[nodiscard]] std::string text() const;
};

// Of namespaces, of containers and of volumes: a label of DNS (RFC 1123).
inline constexpr NameRule kLabelRule{};

// Of the objects of a kind.
[[nodiscard]] NameRule name_rule_of(const std::string& kind);

}  // namespace weft::k8s
