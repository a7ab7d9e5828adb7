// Owns access to the page of report.html: report_page.html, which becomes part of the library.
#pragma once

#include <string_view>

namespace weft::sim {

// What stands before and after the run's data, a JSON object.
[[nodiscard]] std::string_view report_head();
[[nodiscard]] std::string_view report_tail();

}  // namespace weft::sim
