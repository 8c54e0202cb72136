// Archives: any bytes give entries or an error, in bounded time and memory.
#include "codec/archive.h"

#include <cstdint>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  bool given = false;
  auto reader = varda::codec::ArchiveReader::open([&]() -> varda::Result<std::string> {
    if (given) return std::string();
    given = true;
    return bytes;
  });
  if (!reader.ok()) return 0;
  std::size_t total = 0;
  for (int entries = 0; entries < 1000; ++entries) {
    auto entry = (*reader)->next();
    if (!entry.ok() || !*entry) break;
    for (;;) {
      auto piece = (*reader)->read();
      if (!piece.ok() || piece->empty() || (total += piece->size()) > (8u << 20)) break;
    }
    if (total > (8u << 20)) break;
  }
  return 0;
}
