"""The trainer: folders of images in, trained nets and pages out."""
