// Owns asking a weftd over its control socket.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "srd/base/result.hpp"

namespace weft::launch {

// The longest time that a weftd may take for an answer.
inline constexpr std::chrono::seconds kPatienceWithAnswer{10};

// Sends one request and returns the answer, after kPatienceWithAnswer at the latest; an answer that
// says no is an error. `not_found`: there is no weftd.
[[nodiscard]] Result<nlohmann::json> ask_weftd(const std::string& directory,
                                               nlohmann::json request);

// Applies a fault to the network. `text` has the keys of a fault in a scenario file, as YAML
// without braces: "link: h1-*, loss: 0.01". Returns the number by which the fault is ended.
[[nodiscard]] Result<std::uint32_t> apply_fault(const std::string& directory,
                                                const std::string& text);

}  // namespace weft::launch
