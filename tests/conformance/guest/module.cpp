// Owns a library whose constructor and destructor call the guest program that loads it.
extern "C" {
void weft_guest_module_begins();
void weft_guest_module_ends();
}

namespace {
[[gnu::constructor]] void begin() { weft_guest_module_begins(); }
[[gnu::destructor]] void end() { weft_guest_module_ends(); }
}  // namespace
