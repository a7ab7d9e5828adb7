// Owns weftd's part of the folder that containers mount: the way to its socket.
#pragma once

#include <string>

#include "srd/base/result.hpp"

namespace weft::daemon {

// Makes the folder in weftd's directory (attach::kShareFolder), and the socket of processes that
// attach appear in it. A container that has mounted the folder sees the socket of a weftd that was
// started again. The folder and what lies in it may be read by every container that has been given
// it.
[[nodiscard]] Result<void> share_socket(const std::string& directory);

// Lets every user connect; Admission says which of them may stay.
[[nodiscard]] Result<void> open_socket_to_all(const std::string& directory);

}  // namespace weft::daemon
