// Owns how an engine is tuned for life in a real process, whose peers lose their core now and then.
#pragma once

#include "srd/base/result.hpp"
#include "srd/engine/config.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// The defaults of EngineConfig are for a data-centre network whose hosts never pause. Here the
// carrier's properties count, and silence of some milliseconds means that a process has no core.
[[nodiscard]] EngineConfig process_config(const IoCapabilities& carrier, AttachmentId attachment,
                                          Life life);

// Checks also that the carrier has as many paths as are asked for: every packet on one that it does
// not have would be lost.
[[nodiscard]] Result<void> validate(const EngineConfig& config, const IoCapabilities& carrier);

}  // namespace weft::srd
