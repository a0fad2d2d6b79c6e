"""From a topology to a running application: deploy, attach, the offsets at which it begins, and who drives it."""
