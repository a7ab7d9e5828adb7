// Owns the report of what happened in real time, on the page of the simulator's reports.
#pragma once

#include <string>

namespace weft::sim {

// `story_json` is an object: title, note, seconds,
// facts [[value, label, class]], charts [{title, note, unit, series [{name, points}]}], marks,
// paths, events [{at, text}], program (or null), result.
[[nodiscard]] std::string story_html(const std::string& story_json);

// JSON that cannot end the script that holds it.
[[nodiscard]] std::string without_tags(const std::string& json);

}  // namespace weft::sim
