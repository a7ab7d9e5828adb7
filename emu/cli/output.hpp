// Owns what becomes of standard output: what is lost of it is noticed, and said.
#pragma once

namespace weft::cli {

// Writes out what is in the buffer, for a reader that waits for each line. Throws std::system_error
// if it cannot, or if something has been lost before.
void flush_output();

// The end of a command that would end with `code`: output that was lost at any time makes it a
// failure, because a script must not take half a table for all of it. A reader that left (`| head`)
// ends the command as the signal would have.
[[nodiscard]] int end_output(int code);

}  // namespace weft::cli
