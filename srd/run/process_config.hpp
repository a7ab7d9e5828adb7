// Owns how an engine is tuned for life in a real process, whose peers lose their core now and then.
#pragma once

#include "srd/engine/config.hpp"
#include "srd/io/packet_io.hpp"

namespace weft::srd {

// The defaults of EngineConfig are a data-centre network's. Here the carrier's properties count,
// and that silence of some milliseconds means a scheduler, not a loss.
[[nodiscard]] EngineConfig process_config(const IoCapabilities& carrier, AttachmentId attachment,
                                          Life life);

}  // namespace weft::srd
