// Owns plugins with a bug that was planted on purpose: the harness has to find it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "integration/collectives/net.hpp"

namespace weft::collectives {

// matching: now and then two receives change their buffers; size: a receive says one byte less;
// order: now and then two sends change places; early: a receive ends before its message is here;
// reuse: a send ends before its bytes have left; hang: a call of test() does not return;
// torn: flags in a buffer before the data that they stand for; linger: memory and connections that
// were given back stay in use, which only a run in chaos can see.
[[nodiscard]] std::vector<std::string> names_of_bugs();
// `bug` is one of these names.
[[nodiscard]] std::unique_ptr<Net> plant(std::unique_ptr<Net> net, const std::string& bug);

}  // namespace weft::collectives
