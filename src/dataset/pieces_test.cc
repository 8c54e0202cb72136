// The result depends neither on the pieces nor on stops and resumes, and equals that of a simple
// reference.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "codec/json.h"
#include "dataset/count.h"
#include "dataset/internal/delimited.h"
#include "dataset/internal/masks.h"
#include "dataset/internal/scanner.h"
#include "dataset/testing/memory_tree.h"
#include "dataset/testing/reference.h"

namespace varda::dataset {
namespace pieces_test {

/// Texts made of a format's own pieces in random order, to reach every state.
std::string make_text(Rng& rng, const std::vector<std::string>& pieces, std::size_t pieces_max) {
  std::string out = rng.below(8) == 0 ? "\xEF\xBB\xBF" : "";
  const std::uint64_t count = rng.below(pieces_max);
  for (std::uint64_t i = 0; i < count; ++i) out += pieces[rng.below(pieces.size())];
  return out;
}

const std::map<std::string, std::vector<std::string>>& pieces_of_formats() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"csv",
       {"a", "\"", "\"\"", ",", "\n", "\r\n", "\r", "\"q,\n\"\"x\",", "1,2\n", "\"1\",\"2\"\r\n",
        std::string(1, '\0'), "\xEF", "abcdefghijklmnopqrstuvwxyz0123456789,"}},
      {"tsv", {"a", "\"", "\t", "\n", "\r\n", "\r", "1\t2\n", "3\t4\r\n", std::string(1, '\0')}},
      {"txt",
       {"a", " ", "\t", "\n", "\r\n", "\f", "image.jpg\n", std::string(1, '\0'), "\xEF\xBB"}},
      {"jsonl",
       {"{}",
        "\n",
        "[",
        "]",
        "{\"a\":1}\n",
        "\"",
        "\\",
        "\\u00e9",
        "\\ud83d",
        "\\ude00",
        "1",
        "-",
        ".5",
        "e+3",
        "0",
        "true",
        "nul",
        "l",
        ",",
        " ",
        "\xC3\xA9",
        "\xE2\x82",
        "\xAC",
        "\xF0\x9F\x98\x80",
        "[1,\"x\",{\"b\":[null,false]}]\n",
        "\r\n"}},
      {"json",
       {"[", "[", "]", "{\"a\":", "}", ",", "1", "\"x\"", " ", "\n", "true", "{}", "[1,2]", "\"\\u",
        "00e9\"", "\xC3\xA9"}},
      {"coco",
       {"{\"images\":[", "{},", "{}", "]", ",", "\"annotations\":[", "{\"category_id\":1}",
        "{\"category_id\":2},", "\"categories\":[", "{\"id\":1,\"name\":\"c\\u00e4t\"}",
        "{\"id\":2,\"name\":\"dog\"},", "}", "7", "\n", "\"info\":{\"images\":[1]}"}},
  };
  return all;
}

Tally at_once(const Format& format, std::string_view text) {
  const auto scanner = format.stream({});
  scanner->feed(text);
  return scanner->end();
}

TEST(Pieces, AnyPieceSizesAndSavedStatesGiveTheSameTally) {
  const auto rng = seeded_rng(13);
  for (const auto& [name, pieces] : pieces_of_formats()) {
    const Format& format = *find_format(name).value();
    for (int round = 0; round < 60; ++round) {
      const std::string text = make_text(*rng, pieces, round % 3 == 0 ? 400 : 40);
      const Tally whole = at_once(format, text);
      auto scanner = format.stream({});
      const std::uint64_t step_max = 1 + rng->below(rng->below(2) == 0 ? 5 : 200);
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t size = std::min<std::size_t>(text.size() - at, 1 + rng->below(step_max));
        scanner->feed(std::string_view(text).substr(at, size));
        at += size;
        if (rng->below(6) == 0) {
          // Goes through text, like a state on disk.
          const Json saved = codec::parse_json(codec::write_json(scanner->save())).value();
          scanner = format.stream({});
          ASSERT_TRUE(scanner->restore(saved).ok()) << name << " round " << round;
        }
        if (rng->below(10) == 0) {
          ASSERT_EQ(scanner->end(), at_once(format, std::string_view(text).substr(0, at)))
              << name << " round " << round;
        }
      }
      ASSERT_EQ(scanner->end(), whole) << name << " round " << round << "\n" << text;
    }
  }
}

TEST(Pieces, EveryPrefixIsCountedLikeAFileOfItsOwn) {
  const std::map<std::string, std::string> texts = {
      {"csv",
       "\xEF\xBB\xBF"
       "name,t\r\n1,\"a\"\"\r\nb\"\r\n\r\n2,\"\"\n3,x\"y\n\"4\"z,5\n6"},
      {"jsonl", "\xEF\xBB\xBF{\"a\":\"\\ud83d\\ude00\xF0\x9F\x98\x80\"}\n[-1.5e-3,true]\nnope\n0"},
      {"json", "[{\"a\":[1,2]},\"x\\n\",-0.1e5,null]\n"},
      {"coco",
       "{\"images\":[{},{\"id\":1}],\"annotations\":[{\"category_id\":12}],\"categories\":[{\"id\":"
       "12,\"name\":\"a\\tb\"}]}"}};
  for (const auto& [name, text] : texts) {
    const Format& format = *find_format(name).value();
    const auto scanner = format.stream({});
    for (std::size_t size = 0; size <= text.size(); ++size) {
      const std::string_view prefix = std::string_view(text).substr(0, size);
      ASSERT_EQ(scanner->end(), at_once(format, prefix)) << name << " " << size;
      const auto other = format.stream({});
      ASSERT_TRUE(other->restore(scanner->save()).ok());
      other->feed(std::string_view(text).substr(size));
      ASSERT_EQ(other->end(), at_once(format, text)) << name << " cut at " << size;
      if (size < text.size()) scanner->feed(std::string_view(text).substr(size, 1));
    }
  }
}

void expect_same(const Tally& tally, const testing::ReferenceCount& wanted,
                 const std::string& text) {
  ASSERT_EQ(tally.samples, wanted.samples) << ::testing::PrintToString(text);
  ASSERT_EQ(tally.malformed, wanted.malformed) << ::testing::PrintToString(text);
  if (wanted.malformed == 0) return;
  ASSERT_EQ(tally.first_malformed->line, wanted.first_line) << ::testing::PrintToString(text);
  ASSERT_EQ(tally.first_malformed->byte, wanted.first_byte) << ::testing::PrintToString(text);
}

constexpr Dialect kCsv{.delimiter = ',', .quote = '"'}, kTsv{.delimiter = '\t', .quote = '\0'};

/// Uses every kind of instructions of this machine, in one piece and in random pieces.
void expect_obvious(const Dialect& dialect, const std::string& text, Rng& rng) {
  const testing::ReferenceCount wanted =
      testing::reference_csv(text, dialect.delimiter, dialect.quote);
  for (const Instructions& instructions : Instructions::all()) {
    DelimitedScanner whole(dialect, {.header = Header::kNo}, instructions);
    whole.feed(text);
    ASSERT_NO_FATAL_FAILURE(expect_same(whole.end(), wanted, text));
    auto cut = std::make_unique<DelimitedScanner>(dialect, FormatOptions{.header = Header::kNo},
                                                  instructions);
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size =
          std::min<std::size_t>(text.size() - at, 1 + rng.below(rng.below(2) == 0 ? 40 : 1000));
      cut->feed(std::string_view(text).substr(at, size));
      at += size;
      if (rng.below(4) != 0) continue;
      const Json saved = cut->save();
      cut = std::make_unique<DelimitedScanner>(dialect, FormatOptions{.header = Header::kNo},
                                               instructions);
      ASSERT_TRUE(cut->restore(saved).ok());
    }
    ASSERT_EQ(cut->end(), whole.end()) << ::testing::PrintToString(text);
    ASSERT_EQ(codec::write_json(cut->save()), codec::write_json(whole.save()))
        << ::testing::PrintToString(text);
  }
}

TEST(Pieces, DelimitedTextMatchesTheReferenceCounter) {
  const auto rng = seeded_rng(4180);
  for (int round = 0; round < 200; ++round) {
    for (const auto& [name, dialect] : {std::pair("csv", kCsv), std::pair("tsv", kTsv)}) {
      const std::string text =
          make_text(*rng, pieces_of_formats().at(name), round % 4 == 0 ? 600 : 60);
      ASSERT_NO_FATAL_FAILURE(expect_obvious(dialect, text, *rng));
    }
  }
}

std::string in_quotes(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

/// Well-formed records of one to a hundred fields, with an occasional bad byte. They exercise whole
/// blocks, and text after an irregular block.
TEST(Pieces, RecordsWithBadBytesMatchTheReferenceCounter) {
  const auto rng = seeded_rng(4181);
  const std::string spoils("\n\"\r,\0x\t", 7);
  for (int round = 0; round < 400; ++round) {
    const Dialect& dialect = round % 4 == 3 ? kTsv : kCsv;
    const std::uint64_t fields = 1 + rng->below(rng->below(10) == 0 ? 100 : 6),
                        width = 1 + rng->below(60);
    std::string text;
    while (text.size() < 3000) {
      for (std::uint64_t field = 0; field < fields; ++field) {
        std::string value;
        for (std::uint64_t size = rng->below(width); size > 0; --size)
          value += "ab1 ,\n\r\"\xC3\xA9"[rng->below(10)];
        if (dialect.quote == '\0')
          std::erase_if(value, [](char c) { return c == '\n' || c == '\r'; });
        const bool plain =
            dialect.quote == '\0' ||
            (rng->below(2) == 0 && value.find_first_of(",\n\r\"") == std::string::npos);
        text += (field > 0 ? std::string(1, dialect.delimiter) : "") +
                (plain ? value : in_quotes(value));
      }
      text += rng->below(2) == 0 ? "\r\n" : "\n";
      if (rng->below(40) == 0) text += rng->below(2) == 0 ? "\r\n" : "\n";
    }
    if (round % 2 == 0)
      for (std::uint64_t count = rng->below(6); count > 0; --count)
        text[rng->below(text.size())] = spoils[rng->below(spoils.size())];
    ASSERT_NO_FATAL_FAILURE(expect_obvious(dialect, text, *rng));
  }
}

/// Long well-formed texts, which exercise whole blocks.
TEST(Pieces, WellFormedCsvHasTheWrittenRecordCount) {
  const auto rng = seeded_rng(64);
  const Format& csv = *find_format("csv").value();
  for (int round = 0; round < 100; ++round) {
    std::string text;
    const std::uint64_t records = rng->below(300), fields = 2 + rng->below(4);
    for (std::uint64_t i = 0; i < records; ++i) {
      for (std::uint64_t field = 0; field < fields; ++field) {
        if (field > 0) text += ',';
        std::string value;
        for (std::uint64_t size = rng->below(40); size > 0; --size)
          value += "ab1 ,\n\r\"\xC3\xA9"[rng->below(10)];
        if (rng->below(2) == 0 && value.find_first_of(",\n\r\"") == std::string::npos) {
          text += value;
          continue;
        }
        text += '"';
        for (const char c : value) text += c == '"' ? std::string("\"\"") : std::string(1, c);
        text += '"';
      }
      text += rng->below(2) == 0 ? "\r\n" : "\n";
    }
    const auto scanner = csv.stream({.header = Header::kNo});
    scanner->feed(text);
    ASSERT_EQ(scanner->end().samples, records);
    ASSERT_EQ(scanner->end().malformed, 0u);
  }
}

TEST(Pieces, LinesMatchTheReferenceCounter) {
  const auto rng = seeded_rng(8259);
  for (int round = 0; round < 200; ++round) {
    const std::string json = make_text(*rng, pieces_of_formats().at("jsonl"), 30);
    expect_same(
        at_once(*find_format("jsonl").value(), json),
        testing::reference_lines(
            json,
            [](std::string_view line) { return line.find_first_not_of(" \t\r") == line.npos; },
            [](std::string_view line) {
              return codec::parse_json(line, {.depth_max = 1000}).ok();
            }),
        json);
    const std::string text = make_text(*rng, pieces_of_formats().at("txt"), 40);
    expect_same(
        at_once(*find_format("txt").value(), text),
        testing::reference_lines(
            text,
            [](std::string_view line) { return line.find_first_not_of(" \t\r\v\f") == line.npos; },
            [](std::string_view line) { return line.find('\0') == line.npos; }),
        text);
  }
}

TEST(Masks, EveryImplementationFindsTheSameMasks) {
  const auto rng = seeded_rng(2);
  std::string text;
  for (int i = 0; i < 64 * 100; ++i)
    text += rng->below(3) == 0 ? static_cast<char>(rng->below(256)) : ",\"\n\r\0"[rng->below(5)];
  for (const char quote : {'"', '\0'}) {
    std::vector<Masks> plain(100);
    find_masks_plain(text.data(), 100, ',', quote, plain.data());
    for (const NamedFindMasks& way : all_find_masks()) {
      std::vector<Masks> found(100);
      way.find(text.data(), 100, ',', quote, found.data());
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(found[i] == plain[i]) << way.name << " block " << i;
    }
  }
}

}  // namespace pieces_test
}  // namespace varda::dataset
