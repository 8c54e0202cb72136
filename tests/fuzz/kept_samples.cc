// Kept samples, by the first letter. c: a samples.json. p: a .npy file as a picture. Otherwise: the
// facts of a sample.
#include "base/check.h"
#include "cli/samples.h"
#include "codec/text.h"
#include "input.h"
#include "serving/sampling/config.h"
#include "spool/facts.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void config(std::string_view text) {
  const auto parsed = serving::sampling::parse_config(text);
  if (!parsed.ok()) return;
  const std::string written = codec::write_json(serving::sampling::to_json(*parsed));
  CHECK(serving::sampling::parse_config(written).value() == *parsed);
}

void picture(std::string_view bytes) {
  const auto made = cli::picture_of({.format = std::string(spool::Facts::kNpy)}, bytes);
  if (!made.ok()) return;
  CHECK(made->pixels.size() == made->width * made->height * made->channels);
  if (made->pixels.size() > 4096) return;
  CHECK(!cli::terminal_picture(*made, cli::Terminal::kBlocks, 16).empty());
}

void facts(std::string_view text) {
  const auto parsed = spool::parse_facts(text);
  if (!parsed.ok()) return;
  CHECK(spool::parse_facts(codec::write_json(to_json(*parsed))).value() == *parsed);
  const std::string shown = cli::sample_text(*parsed) + cli::samples_table({*parsed}, {});
  CHECK(shown.find('\x1b') == std::string::npos);
  const std::string sheet = cli::contact_sheet("t", {{*parsed, ""}});
  CHECK(codec::is_utf8(sheet));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  switch (input.byte()) {
    case 'c':
      config(input.rest());
      break;
    case 'p':
      picture(input.rest());
      break;
    default:
      facts(input.rest());
  }
  return 0;
}
