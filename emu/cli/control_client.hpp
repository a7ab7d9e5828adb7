// Owns asking a weftd over its control socket.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "srd/base/result.hpp"

namespace weft::cli {

// One request, one answer; an answer that says no is an error.
[[nodiscard]] Result<nlohmann::json> ask_weftd(const std::string& directory,
                                               nlohmann::json request);

}  // namespace weft::cli
