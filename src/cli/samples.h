// `varda samples`: kept samples on this machine's disk, for people who label. Needs no server.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "codec/archive.h"
#include "codec/image.h"
#include "os/file_system.h"
#include "spool/facts.h"
#include "spool/folder.h"

namespace varda::cli {

/// The spool of one model below a data directory.
struct FoundSpool {
  std::string node;  // of `varda up`; "": the directory is an agent's
  std::string key;   // NAMESPACE/NAME, or NAMESPACE/SERVICE.WORKER
  os::Path root;
};

/// All spools below the data directory of an agent, or of `varda up`, sorted.
Result<std::vector<FoundSpool>> find_spools(os::FileSystem& fs, const os::Path& data_directory);
/// The spools of a model: `name` is NAME, NAME.WORKER or the service's NAME, or all of a key.
std::vector<FoundSpool> spools_of(const std::vector<FoundSpool>& all, std::string_view name,
                                  std::string_view ns);

/// The samples that the texts name: ids, or beginnings of ids that fit one sample only. kNotFound,
/// kInvalid: the message names the text.
Result<std::vector<spool::Facts>> choose_samples(const std::vector<spool::Facts>& all,
                                                 const std::vector<std::string>& texts);

/// A table, newest first, or JSON.
std::string samples_table(const std::vector<spool::Facts>& samples, WallTime now);
std::string samples_json(const std::vector<spool::Facts>& samples);
/// The facts of one sample as lines.
std::string sample_text(const spool::Facts& facts);

/// The sample as a picture: a JPEG, a PNG, or an array in the shape of one. Arrays are scaled from
/// their least to their greatest value. kUnsupported: the sample is no picture.
Result<codec::Image> picture_of(const spool::Facts& facts, std::string_view bytes);

enum class Terminal { kBlocks, kKitty, kIterm };
/// The kind of the terminal, by the values of TERM, TERM_PROGRAM and KITTY_WINDOW_ID.
Terminal terminal_of(std::string_view term, std::string_view program, std::string_view kitty);
/// The picture as characters: two pixels a character with 24-bit colours ("half blocks"), or the
/// escape sequences of kitty's and iTerm2's protocols. At most `columns` wide.
std::string terminal_picture(const codec::Image& image, Terminal terminal, std::size_t columns);

/// A self-contained HTML page with all pictures, least confident first.
struct SheetItem {
  spool::Facts facts;
  std::string bytes;
};
std::string contact_sheet(std::string_view title, const std::vector<SheetItem>& items);

/// The archive that the name of an export asks for; nothing: a folder. kInvalid: an archive that is
/// not written.
Result<std::optional<codec::ArchiveFormat>> export_format(const os::Path& to);
/// Writes pending and labelled samples, with their facts, into an archive.
Status export_archive(os::FileSystem& fs, const os::Path& root, codec::ArchiveFormat format,
                      const codec::ArchiveWriter::Sink& sink);
/// The same as a folder, which must be missing or empty.
Status export_folder(os::FileSystem& fs, const os::Path& root, const os::Path& to);

}  // namespace varda::cli
