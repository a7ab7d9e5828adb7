// Owns weftd's metrics as Prometheus text, and the little HTTP around it.
#pragma once

#include <optional>
#include <string>

#include "emu/daemon/control.hpp"

namespace weft::daemon {

// One request to the forwarding thread for all figures.
[[nodiscard]] std::string metrics_text(const ControlView& view);

// Takes one request off the front of `input`. Nothing: it is not complete yet. `close` is set when
// the connection ends after the answer.
[[nodiscard]] std::optional<std::string> answer_http(const ControlView& view, std::string& input,
                                                     bool& close);

}  // namespace weft::daemon
