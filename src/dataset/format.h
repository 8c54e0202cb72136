// The dataset formats, with the definition of one sample in each.
//
//   csv          a record of RFC 4180, without the header: a quoted field may contain line breaks,
//                "" is a quote; CRLF or LF ends it, optional after the last; empty lines are
//                ignored. A record with another number of fields than the first is malformed.
//   tsv          the same with tabs; a quote is an ordinary character
//                (IANA text/tab-separated-values)
//   txt          a line with more than blanks
//   jsonl        a line with more than blanks that is one JSON text
//   json         an element of the file's top-level array
//   coco         an object in the file's array "images"; classes: annotations by category name
//   voc          a file Annotations/*.xml; classes: its annotation/object elements by name. In a
//                folder without Annotations, a file *.xml of the folder itself
//   xml          another name of voc
//   imagefolder  an image, by its extension, at any depth below a folder that names its class
//   idx          an item of the first dimension of an array, as in MNIST
//
// In place of one file, csv, tsv, txt, jsonl and json also take a folder: the sum of all files with
// the format's extension, at any depth.
//
// An item in place of a sample that is not a sample is malformed. Malformed items are counted
// separately, and the first is reported with its place.
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

/// Decides whether the first record of csv and tsv names the columns. kAuto: it does if every field
/// looks like a name: not empty, at most 64 bytes, unique, not a number, none of true, false, null
/// and nan, and without '/', '\' and control characters. Only the first record counts, so growth
/// never changes the guess.
enum class Header { kAuto, kYes, kNo };
Result<Header> parse_header(std::string_view text);  // auto, yes, no
std::string_view to_string(Header header);

struct FormatOptions {
  Header header = Header::kAuto;
};

/// Limits on memory that a file can make this process use.
inline constexpr std::uint64_t kRecordBytesMax = std::uint64_t{64}
                                                 << 20;  // a longer record or line is malformed
inline constexpr std::uint64_t kXmlBytesMax = std::uint64_t{16}
                                              << 20;  // a longer annotation file is malformed
inline constexpr std::size_t kClassesMax =
    10'000;  // the first by name (coco: by id); the rest is one sum
inline constexpr std::size_t kClassNameBytesMax = 256;  // a longer one is malformed
inline constexpr std::size_t kJsonDepthMax = 512;       // deeper texts are malformed
inline constexpr std::size_t kFolderDepthMax = 64;  // deeper folders are skipped, which is reported

/// A malformed item and its place.
struct Malformed {
  std::string file;        // below the counted path; "" if the path is the file
  std::uint64_t line = 0;  // from 1; 0 if the format has no lines
  std::uint64_t byte = 0;  // offset of the record
  std::string why;
  friend bool operator==(const Malformed&, const Malformed&) = default;
};

/// The result of a format's scanner.
struct Tally {
  std::uint64_t samples = 0;
  std::uint64_t malformed = 0;
  std::optional<Malformed> first_malformed;      // first by position; in folders by file name
  bool has_classes = false;                      // the format defines classes
  std::map<std::string, std::uint64_t> classes;  // number per class
  std::uint64_t further_classes = 0;             // sum of the classes beyond kClassesMax
  std::string header;   // "yes" or "no", if the format has a header and a record was seen; ""
                        // also if the files of a folder differ
  std::string inexact;  // the reason why `samples` may be incomplete; "" if exact
  friend bool operator==(const Tally&, const Tally&) = default;
};

class StreamScanner;
class TreeScan;

/// One format. Either `stream` or `tree` is set.
struct Format {
  std::string_view name;
  std::string_view sample;     // description of one sample, for people
  std::string_view extension;  // with `stream`: of the files of a folder; "": only one file
  std::unique_ptr<StreamScanner> (*stream)(const FormatOptions& options) = nullptr;
  std::unique_ptr<TreeScan> (*tree)(const FormatOptions& options) = nullptr;

  bool counts_folders() const { return tree != nullptr || !extension.empty(); }
};

const std::vector<const Format*>& formats();
/// kInvalid lists the known formats. Case does not matter.
Result<const Format*> find_format(std::string_view name);

}  // namespace varda::dataset
