// Owns the insertion of a story into the page.
#include "emu/sim/story_report.hpp"

#include "emu/sim/report_page.hpp"

namespace weft::sim {

std::string without_tags(const std::string& json) {
  std::string safe;
  for (const char c : json) {
    // In JSON '<' stands only within strings, where an escape means the same.
    safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return safe;
}

std::string story_html(const std::string& story_json) {
  return std::string(report_head()) + "{\"story\":" + without_tags(story_json) + "}" +
         std::string(report_tail());
}

}  // namespace weft::sim
