// Owns the report of a story, a run in real time such as that of `weft demo`, on the page of the
// simulator's reports.
#pragma once

#include <string>

namespace weft::sim {

// `story_json` is an object: title, note, seconds,
// facts [[value, label, class]], charts [{title, note, unit, series [{name, points}]}], marks,
// paths, events [{at, text}], program (or null), result.
[[nodiscard]] std::string story_html(const std::string& story_json);

// JSON that is safe within a script element: without it, a "</script>" in a name would end the
// script.
[[nodiscard]] std::string without_tags(const std::string& json);

}  // namespace weft::sim
