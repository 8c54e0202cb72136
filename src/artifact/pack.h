// Packs a model directory into an archive. The same directory always gives the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "artifact/limits.h"
#include "base/context.h"
#include "codec/archive.h"
#include "codec/digest.h"
#include "os/file_system.h"

namespace varda::artifact {

struct PackOptions {
  codec::ArchiveFormat format = codec::ArchiveFormat::kTarGzip;
  std::string framework;  // layout to check: "onnx"; "": any
  Limits limits;          // limits of the nodes that will unpack it
};

struct Packed {
  codec::Sha256 digest;
  std::uint64_t bytes = 0;            // of the archive
  std::uint64_t extracted_bytes = 0;  // of its files
  std::size_t files = 0;
  std::uint64_t chunk_list_bytes = 0;  // 0: no list
};

/// Entries are sorted by name, with modes 0644 and 0755, without times and owners. Hidden files are
/// included. A directory with a single directory inside is wrapped in another ("model/"), because
/// unpacking strips a single top-level directory. `directory` may be an .onnx file, which becomes
/// the only entry. kInvalid: a layout that does not fit the framework, or a content that nodes
/// refuse (links out of the tree, devices, limits).
Result<Packed> pack(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                    const PackOptions& options,
                    const std::function<Status(std::string_view)>& sink);

/// Like pack(), into a file that appears complete or not at all and replaces an existing file. Also
/// kInvalid: `file` is inside the directory. A .tar of 1 MiB or more also gets "FILE.chunks". With
/// that list, nodes download only the parts that no other version has. Compressed archives share no
/// parts.
Result<Packed> pack_to_file(const Context& ctx, os::FileSystem& fs, const os::Path& directory,
                            const PackOptions& options, const os::Path& file);

/// Chooses the format by the file's name: .tar.gz, .tgz, .tar.zst, .tzst, .tar. kInvalid otherwise.
Result<codec::ArchiveFormat> archive_format_of(const os::Path& file);

}  // namespace varda::artifact
