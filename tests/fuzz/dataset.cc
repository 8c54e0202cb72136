// Datasets. The first byte selects the format and the cuts. Any cut, with saved and restored states
// between pieces, gives the count of the whole. csv, tsv and jsonl equal the reference count. A
// damaged state that restores must accept bytes.
#include <string_view>

#include "base/check.h"
#include "codec/json.h"
#include "dataset/internal/delimited.h"
#include "dataset/internal/scanner.h"
#include "dataset/testing/reference.h"
#include "input.h"

namespace {

using namespace varda::dataset;

Tally at_once(const Format& format, std::string_view text) {
  const auto scanner = format.stream({});
  scanner->feed(text);
  return scanner->end();
}

void check_same(const Tally& tally, const testing::ReferenceCount& wanted) {
  CHECK(tally.samples == wanted.samples && tally.malformed == wanted.malformed);
  if (wanted.malformed > 0)
    CHECK(tally.first_malformed->line == wanted.first_line &&
          tally.first_malformed->byte == wanted.first_byte);
}

/// True if the text may contain a large number: many digits, or an exponent.
bool has_great_number(std::string_view text) {
  std::size_t digits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    if (++digits > 15 || (i + 1 < text.size() && (text[i + 1] == 'e' || text[i + 1] == 'E')))
      return true;
  }
  return false;
}

void check_reference(const Format& format, std::string_view text) {
  if (format.name == "csv" || format.name == "tsv") {
    const bool csv = format.name == "csv";
    const Dialect dialect{.delimiter = csv ? ',' : '\t', .quote = csv ? '"' : '\0'};
    const testing::ReferenceCount wanted =
        testing::reference_csv(text, dialect.delimiter, dialect.quote);
    for (const Instructions& instructions : Instructions::all()) {
      DelimitedScanner scanner(dialect, {.header = Header::kNo}, instructions);
      scanner.feed(text);
      check_same(scanner.end(), wanted);
    }
  } else if (format.name == "jsonl") {
    const testing::ReferenceCount wanted = testing::reference_lines(
        text, [](std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; },
        [](std::string_view line) {
          return varda::codec::parse_json(line, {.depth_max = 600}).ok();
        });
    const Tally tally = at_once(format, text);
    // Numbers that our trees cannot hold are still valid JSON.
    CHECK(tally.samples >= wanted.samples &&
          tally.samples + tally.malformed == wanted.samples + wanted.malformed);
    if (!has_great_number(text)) check_same(tally, wanted);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  varda::fuzz::Input input(data, size);
  static const std::vector<const Format*> kStreams = [] {
    std::vector<const Format*> out;
    for (const Format* format : formats()) {
      if (format->stream != nullptr) out.push_back(format);
    }
    return out;
  }();
  const unsigned choice = input.byte();
  const Format& format = *kStreams[choice % kStreams.size()];
  const std::size_t step = 1 + choice / kStreams.size();
  const std::string_view text = input.rest();
  const Tally whole = at_once(format, text);
  CHECK(whole.first_malformed.has_value() == (whole.malformed > 0));

  auto scanner = format.stream({});
  for (std::size_t at = 0; at < text.size(); at += step) {
    scanner->feed(text.substr(at, step));
    if (at / step % 16 == 7) {
      const auto saved = varda::codec::parse_json(varda::codec::write_json(scanner->save()));
      CHECK(saved.ok());
      scanner = format.stream({});
      CHECK(scanner->restore(*saved).ok());
    }
  }
  CHECK(scanner->end() == whole);
  if (text.size() < 10'000) check_reference(format, text);

  // The text is also tried as a state.
  if (const auto state = varda::codec::parse_json(text); state.ok()) {
    const auto other = format.stream({});
    if (other->restore(*state).ok()) {
      other->feed(text);
      (void)other->end();
    }
  }
  return 0;
}
