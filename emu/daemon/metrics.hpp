// Owns weftd's metrics as Prometheus text, and the little HTTP around it.
#pragma once

#include <optional>
#include <string>

namespace weft::emu {

class Daemon;

[[nodiscard]] std::string metrics_text(const Daemon& daemon);

// Takes one request off the front of `input`. Nothing: it is not complete yet. `close` is set when
// the connection shall end after the answer.
[[nodiscard]] std::optional<std::string> answer_http(const Daemon& daemon, std::string& input,
                                                     bool& close);

}  // namespace weft::emu
