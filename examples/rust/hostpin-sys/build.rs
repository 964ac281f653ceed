//! Finds libhostpin by pkg-config and links it.

use std::path::PathBuf;

fn main() {
    let is_static = cfg!(feature = "static");
    let found =
        pkg_config::Config::new().atleast_version("1.0").statik(is_static).cargo_metadata(!is_static).probe("hostpin");
    match found {
        Ok(library) if is_static => link_static(&library),
        Ok(_) => {}
        Err(error) => {
            eprintln!(
                "libhostpin 1.0 or later was not found. Install it (Debian: libhostpin-dev), or name the folder of its \
                 hostpin.pc in PKG_CONFIG_PATH.\n{error}"
            );
            std::process::exit(1);
        }
    }
}

// pkg-config's own output falls back to the shared library where the static one lies in a system folder.
fn link_static(library: &pkg_config::Library) {
    let has_archive = |path: &&PathBuf| path.join("libhostpin.a").exists();
    let Some(folder) = library.link_paths.iter().find(has_archive) else {
        eprintln!(
            "feature `static`: there is no libhostpin.a in {:?}; build libhostpin with -Ddefault_library=both",
            library.link_paths
        );
        std::process::exit(1);
    };
    // It becomes a part of this crate.
    println!("cargo:rerun-if-changed={}/libhostpin.a", folder.display());
    println!("cargo:rustc-link-search=native={}", folder.display());
    println!("cargo:rustc-link-lib=static=hostpin");
    for name in library.libs.iter().filter(|name| *name != "hostpin") {
        println!("cargo:rustc-link-lib={name}");
    }
}
