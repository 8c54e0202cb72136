// The formats a dataset can have, and what one sample is in each.
//
//   csv          a record of RFC 4180, without the header: a quoted field may hold line breaks, "" is a quote; CRLF or LF ends it, of
//                the last one it may lack; empty lines are none. As many fields as the first record, or it is malformed.
//   tsv          the same with tabs, where a quote is a character like any other (IANA text/tab-separated-values)
//   txt          a line that holds more than blanks
//   jsonl        a line that holds more than blanks and is one JSON text
//   json         an element of the array that the file is
//   coco         an object in the array "images" of the file; classes: annotations by the name of their category
//   voc          a file Annotations/*.xml; classes: its annotation/object elements by name
//   imagefolder  an image, by its extension, at any depth below a folder that names its class
//
// What stands where a sample would and is none is malformed: counted apart, and the first one is told with its place.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace varda::dataset {

/// Whether the first record of csv and tsv names the columns. kAuto: it does if every field of it looks like a name: not empty, at
/// most 64 bytes, all different, no number, none of true, false, null and nan, and without '/', '\' and control characters. A guess
/// by the first record alone, so that growth never changes it.
enum class Header { kAuto, kYes, kNo };
Result<Header> parse_header(std::string_view text);  // auto, yes, no
std::string_view to_string(Header header);

struct FormatOptions {
  Header header = Header::kAuto;
};

/// Bounds on what a file can make us remember.
inline constexpr std::uint64_t kRecordBytesMax = std::uint64_t{64} << 20;  // a longer record or line is malformed
inline constexpr std::uint64_t kXmlBytesMax = std::uint64_t{16} << 20;     // a longer annotation file is malformed
inline constexpr std::size_t kClassesMax = 10'000;                         // the first by name (coco: by id); the rest is a sum
inline constexpr std::size_t kClassNameBytesMax = 256;                     // a longer one is malformed
inline constexpr std::size_t kJsonDepthMax = 512;                          // deeper is malformed
inline constexpr std::size_t kFolderDepthMax = 64;                         // deeper folders are not entered, and that is told

/// Something that is no sample, and where.
struct Malformed {
  std::string file;        // below the path that was counted; "" where that is the file
  std::uint64_t line = 0;  // from 1; 0 where lines mean nothing
  std::uint64_t byte = 0;  // offset of its record
  std::string why;
  friend bool operator==(const Malformed&, const Malformed&) = default;
};

/// What a format has found.
struct Tally {
  std::uint64_t samples = 0;
  std::uint64_t malformed = 0;
  std::optional<Malformed> first_malformed;      // by position; in folders by file name
  bool has_classes = false;                      // the format knows classes
  std::map<std::string, std::uint64_t> classes;  // how many of each
  std::uint64_t further_classes = 0;             // how many of the classes beyond kClassesMax together
  std::string header;                            // "yes" or "no" where the format has one and a record has been seen
  std::string inexact;                           // why `samples` may not be all there is; "" if it is
  friend bool operator==(const Tally&, const Tally&) = default;
};

class StreamScanner;
class TreeScan;

/// One format. Either `stream` or `tree` is set.
struct Format {
  std::string_view name;
  std::string_view sample;  // what one is, for people
  std::unique_ptr<StreamScanner> (*stream)(const FormatOptions& options) = nullptr;
  std::unique_ptr<TreeScan> (*tree)(const FormatOptions& options) = nullptr;
};

const std::vector<const Format*>& formats();
/// kInvalid names those there are. Upper and lower case are the same.
Result<const Format*> find_format(std::string_view name);

}  // namespace varda::dataset
