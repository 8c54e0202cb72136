// Snapshots of folders from a peer.
//
// The first byte cuts the text into the existing and the wanted snapshot. A decoded snapshot is
// safe and encodes to the same bytes. A difference covers every block once.
#include "base/check.h"
#include "input.h"
#include "replica/difference.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace varda;  // NOLINT: one function
  fuzz::Input input(data, size);
  const std::size_t cut = input.byte();
  const std::string_view text = input.rest();
  const replica::Limits limits{.files_max = 1000, .blocks_max = 10'000};
  const auto wanted = replica::Snapshot::decode(text, limits),
             have = replica::Snapshot::decode(text.substr(0, cut), limits);
  if (!wanted.ok()) return 0;
  CHECK(wanted->encode() == text);
  std::string_view last;
  for (const replica::SnapshotFile& file : wanted->files) {
    CHECK(replica::check_path(file.path).empty());
    CHECK(&file == &wanted->files.front() || replica::PathOrder()(last, file.path));
    last = file.path;
  }
  const auto plans = replica::difference(have.value_or({}), *wanted, 3);
  CHECK(plans.size() == wanted->files.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    std::uint64_t next = 0, fetched = 0;
    for (const replica::BlockRun& run : plans[i].runs) {
      CHECK(run.first == next && run.count > 0);
      for (std::uint64_t b = run.first; b < run.first + run.count; ++b) {
        if (run.fetch) {
          fetched += replica::length_of(b, wanted->files[i].size, wanted->block_bytes);
        } else {
          CHECK(have->files.at(run.file).blocks.at(run.from_block + b - run.first) ==
                wanted->files[i].blocks[b]);
        }
      }
      next += run.count;
    }
    CHECK(plans[i].link || next == wanted->files[i].blocks.size());
    CHECK(fetched == plans[i].fetch_bytes);
  }
  return 0;
}
