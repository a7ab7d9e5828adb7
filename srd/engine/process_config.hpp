// Owns how an engine is tuned for life in a real process, whose peers lose their core now and then.
#pragma once

#include "srd/base/result.hpp"
#include "srd/engine/config.hpp"
#include "srd/net/packet_io.hpp"

namespace weft::srd {

// The defaults of EngineConfig are a data-centre network's. Here the carrier's properties count,
// and that silence of some milliseconds means a scheduler, not a loss.
[[nodiscard]] EngineConfig process_config(const IoCapabilities& carrier, AttachmentId attachment,
                                          Life life);

// Also whether the carrier can do what is asked for: of paths that it does not have every packet
// would be lost.
[[nodiscard]] Result<void> validate(const EngineConfig& config, const IoCapabilities& carrier);

}  // namespace weft::srd
