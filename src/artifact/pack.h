// Packs a model directory into an archive: the same directory always makes the same bytes.
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
  std::string framework;  // its layout is checked: "onnx"; "" any
  Limits limits;          // of the nodes that will unpack it
};

struct Packed {
  codec::Sha256 digest;
  std::uint64_t bytes = 0;            // of the archive
  std::uint64_t extracted_bytes = 0;  // of its files
  std::size_t files = 0;
};

/// Entries by name, modes 0644 and 0755, no times, no owners. Hidden files are packed too. A directory whose only entry is a
/// directory is wrapped in one more ("model/"), because unpacking strips a single top-level directory.
/// `directory` may be an .onnx file: it becomes the only entry.
/// kInvalid: what a node would refuse (links out of the tree, devices, limits), or a layout that does not fit the framework.
Result<Packed> pack(const Context& ctx, os::FileSystem& fs, const os::Path& directory, const PackOptions& options,
                    const std::function<Status(std::string_view)>& sink);

/// The same into a file, which appears complete or not at all and replaces what was there. kInvalid also: `file` lies inside the
/// directory.
Result<Packed> pack_to_file(const Context& ctx, os::FileSystem& fs, const os::Path& directory, const PackOptions& options,
                            const os::Path& file);

/// By the file's name: .tar.gz, .tgz, .tar.zst, .tzst, .tar. kInvalid otherwise.
Result<codec::ArchiveFormat> archive_format_of(const os::Path& file);

}  // namespace varda::artifact
